from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from datamask_pipeline.errors import InputError, UnknownNameError
from datamask_pipeline.evaluation.config import EvaluateConfig
from datamask_pipeline.evaluation.questions import QuestionSet, prepare_questions

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


def test_the_choice_depends_on_seed_and_question_alone(jsonl: Any, tmp_path: Path) -> None:
    jsonl(tmp_path / "one" / "piqa.jsonl", _GOOD)
    jsonl(tmp_path / "two" / "piqa" / "a.jsonl", _GOOD[::-1][:11])
    jsonl(tmp_path / "two" / "piqa" / "b.jsonl", _GOOD[::-1][11:])
    one, two = (
        _prepare(tmp_path / name, tmp_path / f"{name}-made", questions_per_task=7) for name in ("one", "two")
    )
    assert len(_goals(one.file)) == one.num_questions == 7
    assert _goals(one.file) == _goals(two.file)
    assert one.digest == two.digest
    more = _prepare(tmp_path / "one", tmp_path / "more", questions_per_task=9)
    assert _goals(more.file)[:7] == _goals(one.file)
    other = _prepare(tmp_path / "one", tmp_path / "other", questions_per_task=7, seed=1)
    assert set(_goals(other.file)) != set(_goals(one.file))
    assert other.digest != one.digest


def test_solved_examples_are_never_asked(jsonl: Any, tmp_path: Path) -> None:
    jsonl(tmp_path / "source" / "piqa.jsonl", _GOOD)
    found = _prepare(tmp_path / "source", tmp_path / "made", shots=4)
    asked, shown = _goals(found.file), _goals(found.demonstrations)
    assert (len(asked), len(shown)) == (26, 4)
    assert not set(asked) & set(shown)
    jsonl(tmp_path / "source" / "train.jsonl", [*_GOOD[:2], {**_GOOD[2], "goal": "solved"}, "{"])
    named = _prepare(
        tmp_path / "source",
        tmp_path / "named",
        shots=1,
        demonstration_files={"piqa": "train.jsonl"},
    )
    assert _goals(named.demonstrations) == ["solved"]
    assert (named.num_read, named.num_rejected, named.num_questions) == (34, 1, 30)
    with pytest.raises(InputError, match="1 solved examples left for 2 shots"):
        _prepare(tmp_path / "source", tmp_path, shots=2, demonstration_files={"piqa": "train.jsonl"})


def test_mmlu_shows_examples_of_its_own_subject(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for split in ("dev", "test"):
        (source / split).mkdir(parents=True)
        for subject in ("anatomy", "virology"):
            lines = [f"{split} {subject} {n} ?,p{n},q{n},r{n},s{n},B\n" for n in range(3)]
            (source / split / f"{subject}_{split}.csv").write_text("".join(lines))
    settings: dict[str, Any] = {
        "question_files": {"mmlu": "test/*.csv"},
        "demonstration_files": {"mmlu": "dev/*.csv"},
    }
    found = _prepare(source, tmp_path / "made", "mmlu", shots=2, **settings)
    assert found.demonstrations is None
    rows = pq.read_table(found.file).to_pylist()
    assert len(rows) == 6
    for row in rows:
        shown = row["demonstrations"]
        assert shown.count(f"Question: dev {row['subject']} ") == shown.count("Question: ") == 2
        assert "\nAnswer: q" in shown
    assert found.digest != _prepare(source, tmp_path / "none", "mmlu", **settings).digest
    with pytest.raises(InputError, match="fewer than 4 solved examples"):
        _prepare(source, tmp_path / "many", "mmlu", shots=4, **settings)


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
    with pytest.raises(InputError, match="does not exist"):
        _prepare(tmp_path / "nowhere", tmp_path / "made")
    with pytest.raises(UnknownNameError, match="unknown benchmark task 'boolq'"):
        _prepare(tmp_path, tmp_path / "made", "boolq")
    with pytest.raises(UnknownNameError, match="'pika'"):
        _prepare(tmp_path, tmp_path / "made", question_files={"pika": "*.jsonl"})
