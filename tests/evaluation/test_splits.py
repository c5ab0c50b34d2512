"""The split that a task asks is the one that is read, whatever lies beside it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from datamask_pipeline.errors import InputError
from datamask_pipeline.evaluation.benchmarks import all_benchmarks
from datamask_pipeline.evaluation.config import EvaluateConfig
from datamask_pipeline.evaluation.questions import QuestionSet, prepare_questions
from datamask_pipeline.evaluation.splits import asked_split, examples_split

Layout = Callable[..., Path]
_ARC = {"choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "A"}


@pytest.fixture
def folder(tmp_path: Path) -> Layout:
    """Makes empty files of these names."""

    def make(*names: str) -> Path:
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        return tmp_path

    return make


def _asked(root: Path, task: str, pattern: str | None = None) -> tuple[str | None, list[str], list[str]]:
    split = asked_split(root, all_benchmarks()[task], pattern)
    names = ([path.relative_to(root).as_posix() for path in paths] for paths in (split.files, split.others))
    return (split.name, *names)


@pytest.mark.parametrize(
    ("task", "names", "read"),
    [
        ("piqa", ["piqa.jsonl"], ["piqa.jsonl"]),
        ("piqa", ["piqa/all.jsonl"], ["piqa/all.jsonl"]),
        ("piqa", ["piqa/train.jsonl", "piqa/valid.jsonl", "piqa/test.jsonl"], ["piqa/valid.jsonl"]),
        ("piqa", ["piqa/dev.jsonl", "piqa/validation.jsonl"], ["piqa/validation.jsonl"]),
        ("arc_challenge", ["ai2_arc/ARC-Easy/test.jsonl", "ai2_arc/ARC-Challenge/test.jsonl"], [
            "ai2_arc/ARC-Challenge/test.jsonl"
        ]),
        ("openbookqa", ["openbookqa/main/test.jsonl", "openbookqa/additional/test.jsonl"], [
            "openbookqa/main/test.jsonl"
        ]),
        ("social_iqa", ["siqa/data/train.jsonl", "siqa/data/validation.jsonl"], ["siqa/data/validation.jsonl"]),
        ("race_middle", ["race/high/test.json", "race/middle/test.json"], ["race/middle/test.json"]),
        (
            "hellaswag",
            [f"hellaswag/data/{split}-0000{n}-of-00002.parquet" for split in ("train", "validation") for n in (0, 1)],
            [f"hellaswag/data/validation-0000{n}-of-00002.parquet" for n in (0, 1)],
        ),
        (
            "mmlu",
            [f"mmlu/{split}/{name}_{split}.csv" for split in ("dev", "test") for name in ("anatomy", "virology")],
            ["mmlu/test/anatomy_test.csv", "mmlu/test/virology_test.csv"],
        ),
        ("mmlu", ["mmlu/a_dev.csv", "mmlu/a_test.csv", "mmlu/b_test.csv"], ["mmlu/a_test.csv", "mmlu/b_test.csv"]),
        ("mmlu", ["mmlu/all/test.parquet", "mmlu/anatomy/test.parquet"], ["mmlu/all/test.parquet"]),
    ],
)  # fmt: skip
def test_the_named_split_is_read_and_what_lies_beside_it_is_named(
    task: str, names: list[str], read: list[str], folder: Layout
) -> None:
    _, files, others = _asked(folder(*names), task)
    assert files == read
    assert not set(files) & set(others)


@pytest.mark.parametrize(
    ("task", "names", "reason"),
    [
        ("mmlu", [], r"no question file for task 'mmlu'.*mmlu\.\* or mmlu/"),
        (
            "arc_challenge",
            ["train.jsonl"],
            "asks the split 'test', which is not there: arc_challenge/train.jsonl",
        ),
        (
            "nq_open",
            ["NQ.dev.jsonl", "NQ.efficient.dev.jsonl"],
            "finds 2 question sets of the split 'validation'",
        ),
        (
            "piqa",
            ["validation.jsonl", "validation.parquet"],
            "finds 2 question sets of the split 'validation'",
        ),
        ("piqa", ["a.jsonl", "b.jsonl"], "none of which states its split: piqa/a.jsonl, piqa/b.jsonl"),
        ("kqapro", ["gold.jsonl", "validation_no_gold.jsonl"], "which file holds it is not clear"),
        (
            "piqa",
            ["../piqa.jsonl", "validation.jsonl"],
            "question sets in several places: piqa.jsonl, piqa/valid",
        ),
        (
            "hellaswag",
            ["validation-00001-of-00002.parquet"],
            "a shard of the split is missing.*00000-of-00002",
        ),
    ],
)
def test_what_is_missing_or_could_be_either_is_refused(
    task: str, names: list[str], reason: str, folder: Layout
) -> None:
    root = folder(*(f"{task}/{name}" for name in names))
    with pytest.raises(InputError, match=reason):
        _asked(root, task)


def test_a_glob_says_which_and_mixes_no_splits(folder: Layout) -> None:
    root = folder("nq_open/NQ.dev.jsonl", "nq_open/NQ.efficient.dev.jsonl", "nq_open/train.jsonl")
    assert _asked(root, "nq_open", "nq_open/NQ.dev.jsonl")[:2] == ("validation", ["nq_open/NQ.dev.jsonl"])
    assert len(_asked(root, "nq_open", "nq_open/*.dev.jsonl")[1]) == 2
    with pytest.raises(InputError, match=r"several splits at once by question_files 'nq_open/\*'"):
        _asked(root, "nq_open", "nq_open/*")
    with pytest.raises(InputError, match=r"a shard of the split is missing.*00000-of-00002"):
        _asked(folder("piqa/validation-00001-of-00002.parquet"), "piqa", "piqa/validation-*")
    with pytest.raises(InputError, match="files of a split beside files that state none by question_files"):
        _asked(folder("kqapro/gold.jsonl", "kqapro/validation.jsonl"), "kqapro", "kqapro/*.jsonl")


def test_the_remedy_names_a_file_that_can_be_asked_and_never_another_split(folder: Layout) -> None:
    root = folder("nq_open/NQ.dev.jsonl", "nq_open/NQ.efficient.dev.jsonl")
    with pytest.raises(InputError, match=r"e\.g\. {nq_open: nq_open/NQ\.dev\.jsonl}"):
        _asked(root, "nq_open")
    with pytest.raises(InputError, match="add the files of that split") as refused:
        _asked(folder("arc_challenge/train.jsonl"), "arc_challenge")
    assert "question_files" not in str(refused.value)


def test_solved_examples_come_from_their_own_split(folder: Layout) -> None:
    root = folder(
        "openbookqa/train.jsonl", "openbookqa/test.jsonl", "piqa/validation.jsonl", "race_high.jsonl"
    )
    for task, expected in {"openbookqa": "train", "race_high": None}.items():
        benchmark = all_benchmarks()[task]
        found = examples_split(root, benchmark, None, asked_split(root, benchmark, None))
        assert (found and found.name) == expected
    with pytest.raises(InputError, match="solved examples from the split 'train', which is not there"):
        examples_split(
            root, all_benchmarks()["piqa"], None, asked_split(root, all_benchmarks()["piqa"], None)
        )


def test_rows_read_are_those_of_the_split(
    jsonl: Callable[[Path, list[object]], Path], tmp_path: Path
) -> None:
    for split, number in {"train": 9, "validation": 5, "test": 4}.items():
        rows: list[object] = [{"question": f"{split} {n}?", **_ARC} for n in range(number)]
        jsonl(tmp_path / "source" / "arc_challenge" / f"{split}.jsonl", rows)

    def prepared(shots: int) -> QuestionSet:
        config = EvaluateConfig(questions=str(tmp_path / "source"), tasks=["arc_challenge"], shots=shots)
        return prepare_questions(config, tmp_path / f"made{shots}")[0]

    none, two = prepared(0), prepared(2)
    assert (none.split, none.num_read, none.num_examples_read, none.num_questions) == ("test", 4, 0, 4)
    assert none.files_beside == ("arc_challenge/train.jsonl", "arc_challenge/validation.jsonl")
    assert (two.num_read, two.num_examples_read, two.num_questions) == (4, 9, 4)
    assert [(file.file, file.split, file.use, file.rows) for file in two.files] == [
        ("arc_challenge/test.jsonl", "test", "asked", 4),
        ("arc_challenge/train.jsonl", "train", "examples", 9),
    ]
    assert two.files_beside == ("arc_challenge/validation.jsonl",)
    assert two.digest != none.digest
