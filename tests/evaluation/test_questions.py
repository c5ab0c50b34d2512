from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from datamask_pipeline.errors import InputError, UnknownNameError
from datamask_pipeline.evaluation.config import EvaluateConfig
from datamask_pipeline.evaluation.questions import QuestionSet, prepare_questions
from datamask_pipeline.stages.questions import told

_GOOD = [{"goal": f"goal {n}", "sol1": "a", "sol2": "b", "label": n % 2} for n in range(30)]


def _prepare(source: Path, target: Path, task: str = "piqa", **settings: Any) -> QuestionSet:
    config = EvaluateConfig(questions=str(source), tasks=[task], **settings)
    return prepare_questions(config, target)[0]


def _goals(path: Path | None) -> list[str]:
    assert path is not None
    return [row["goal"] for row in pq.read_table(path).to_pylist()]


def test_rows_balance_and_each_refusal_is_named(jsonl: Any, tmp_path: Path) -> None:
    rows = [*_GOOD[:3], "{broken", {**_GOOD[4], "label": 7}, _GOOD[1], _GOOD[5]]
    jsonl(tmp_path / "source" / "piqa.jsonl", rows)
    found = _prepare(tmp_path / "source", tmp_path / "made")
    assert (found.num_read, found.num_rejected, found.num_items, found.num_questions) == (7, 3, 4, 4)
    reasons = [(row.file, row.row, row.reason.split(":")[0]) for row in found.rejected]
    assert reasons == [
        ("piqa.jsonl", 3, "no JSON"),
        ("piqa.jsonl", 4, "field 'label' is 7, none of"),
        ("piqa.jsonl", 5, "repeats an earlier row"),
    ]
    assert (found.source, found.chance) == ("source", 0.5)


def test_a_question_with_half_of_a_surrogate_pair_is_refused_by_row(jsonl: Any, tmp_path: Path) -> None:
    jsonl(tmp_path / "source" / "piqa.jsonl", [*_GOOD[:2], {**_GOOD[2], "sol1": "\ud83d"}])
    found = _prepare(tmp_path / "source", tmp_path / "made")
    assert [(row.row, row.reason) for row in found.rejected] == [(2, "no Unicode: half of a surrogate pair")]
    assert (found.num_read, found.num_questions) == (3, 2)


def test_the_choice_depends_on_seed_and_question_alone(jsonl: Any, tmp_path: Path) -> None:
    jsonl(tmp_path / "one" / "piqa.jsonl", _GOOD)
    jsonl(tmp_path / "two" / "piqa" / "a.jsonl", _GOOD[::-1][:11])
    jsonl(tmp_path / "two" / "piqa" / "b.jsonl", _GOOD[::-1][11:])
    one, two = (
        _prepare(
            tmp_path / name,
            tmp_path / f"{name}-made",
            questions_per_task=7,
            question_files={"piqa": "piqa*/**/*.jsonl" if name == "two" else "piqa.jsonl"},
        )
        for name in ("one", "two")
    )
    assert len(_goals(one.file)) == one.num_questions == 7
    assert _goals(one.file) == _goals(two.file)[::-1]  # each in the order of its rows
    assert one.digest == two.digest
    more = _prepare(tmp_path / "one", tmp_path / "more", questions_per_task=9)
    assert set(_goals(more.file)) > set(_goals(one.file))
    other = _prepare(tmp_path / "one", tmp_path / "other", questions_per_task=7, seed=1)
    assert set(_goals(other.file)) != set(_goals(one.file))
    assert other.digest != one.digest


def test_solved_examples_are_never_asked(jsonl: Any, tmp_path: Path) -> None:
    jsonl(tmp_path / "source" / "piqa.jsonl", _GOOD)
    found = _prepare(tmp_path / "source", tmp_path / "made", shots=4)
    asked, shown = _goals(found.file), _goals(found.demonstrations)
    assert (len(asked), len(shown), len(set(shown))) == (26, 4 * 26, 4)
    assert not set(asked) & set(shown)
    jsonl(tmp_path / "source" / "train.jsonl", [*_GOOD[:2], {**_GOOD[2], "goal": "solved"}, "{"])
    given: dict[str, Any] = {"demonstration_files": {"piqa": "train.jsonl"}}
    named = _prepare(tmp_path / "source", tmp_path / "named", shots=1, **given)
    shown = _goals(named.demonstrations)
    assert set(shown) == {"goal 0", "goal 1", "solved"}
    assert all(before != example for before, example in zip(_goals(named.file), shown, strict=True))
    assert (named.num_read, named.num_examples_read, named.num_rejected, named.num_questions) == (
        30,
        4,
        1,
        30,
    )
    assert [(file.file, file.use, file.rows) for file in named.files] == [
        ("piqa.jsonl", "asked", 30),
        ("train.jsonl", "examples", 4),
    ]
    with pytest.raises(InputError, match="3 solved examples left where 5 are needed"):
        _prepare(tmp_path / "source", tmp_path, shots=4, **given)
    for chosen in (1, 2, 3):  # also where the split's first row is not among those asked
        with pytest.raises(InputError, match="3 solved examples left where 5 are needed"):
            _prepare(tmp_path / "source", tmp_path, shots=4, questions_per_task=chosen, **given)


def test_answers_that_look_like_dates_stay_text(jsonl: Any, tmp_path: Path) -> None:
    import datasets

    rows = [{"question": f"Q{n}", "answer": [f"1999-01-0{n}"]} for n in range(1, 4)]
    jsonl(tmp_path / "source" / "nq_open.jsonl", rows)
    found = _prepare(tmp_path / "source", tmp_path / "made", "nq_open")
    files = {"questions": str(found.file)}
    loaded = datasets.load_dataset("parquet", data_files=files, cache_dir=str(tmp_path / "cache"))
    assert sorted(row["answer"][0] for row in loaded["questions"]) == [
        "1999-01-01",
        "1999-01-02",
        "1999-01-03",
    ]
    assert found.chance == 0.0


def test_what_cannot_be_asked_is_refused(jsonl: Any, tmp_path: Path) -> None:
    jsonl(tmp_path / "piqa.jsonl", [{"goal": "g"}, {"goal": "h"}])
    with pytest.raises(InputError, match=r"no usable question.*2 rows: field 'sol1' is missing"):
        _prepare(tmp_path, tmp_path / "made")
    jsonl(tmp_path / "few" / "piqa.jsonl", _GOOD[:4])
    with pytest.raises(InputError, match="'piqa' has 4 questions in one file; 4 solved examples need 5"):
        _prepare(tmp_path / "few", tmp_path / "made", shots=4)
    with pytest.raises(InputError, match="does not exist"):
        _prepare(tmp_path / "nowhere", tmp_path / "made")
    with pytest.raises(UnknownNameError, match="unknown benchmark task 'boolkew'"):
        _prepare(tmp_path, tmp_path / "made", "boolkew")
    with pytest.raises(UnknownNameError, match="'pika'"):
        _prepare(tmp_path, tmp_path / "made", question_files={"pika": "*.jsonl"})


def test_refused_rows_and_another_split_are_told_of() -> None:
    refused = {"task": "piqa", "file": "piqa/train.jsonl", "row": 7, "reason": "field 'goal' is missing"}
    about = {
        "task": "piqa",
        "split": "train",
        "num_read": 1200,
        "num_examples_read": 0,
        "rejected": [refused],
    }
    whole = about | {"split": "validation", "rejected": []}
    assert list(told({"metadata": {"sets": [about, whole, whole | {"split": None}]}})) == [
        "piqa: asked is the split 'train', where lm-eval asks 'validation'",
        "piqa: 1 of 1,200 rows refused; the first is row 7, counted from 0, of piqa/train.jsonl: field 'goal' is missing; "
        "all stand in the manifest",
    ]
