"""What a model is asked is what stock lm-eval would ask, with and without solved examples: made rows through both."""

import json
from pathlib import Path
from typing import Any

import pytest
from stock_tasks import FILES, Row, our_task, prompts_and_targets, stock_task

from datamask_pipeline.evaluation.config import EvaluateConfig
from datamask_pipeline.evaluation.questions import QuestionSet, prepare_questions

_SIZES = {"train": 31, "validation": 20, "test": 20, "dev": 6}


def _row(task: str, name: str, n: int) -> Row:
    choices = {"text": [f"{name} {letter}{n}" for letter in "pqrs"], "label": list("ABCD")}
    problem = {"question": f"{name} {n} _ .", "options": choices["text"], "answer": "ABCD"[n % 4]}
    five = {"text": [*choices["text"], f"t{n}"], "label": list("ABCDE")}
    of_task: dict[str, Row] = {
        "commonsense_qa": {"question": f" {name} {n}? ", "choices": five, "answerKey": "ABCDE"[n % 5]},
        "arc_challenge": {"question": f"{name} {n}?", "choices": choices, "answerKey": "ABCD"[n % 4]},
        "openbookqa": {"question_stem": f"{name} {n}", "choices": choices, "answerKey": "ABCD"[n % 4]},
        "piqa": {"goal": f"{name} {n}", "sol1": "one", "sol2": "other", "label": n % 2},
        "social_iqa": {"context": f"{name} {n}.", "question": "Why?", "answerA": "a", "answerB": "b", "answerC": "c",
                       "label": str(1 + n % 3)},
        "winogrande": {"sentence": f"{name} {n}: the _ is old.", "option1": "cat", "option2": "dog",
                       "answer": str(1 + n % 2)},
        "nq_open": {"question": f"{name} {n}", "answer": [f"first {n}", f"second {n}"]},
        "triviaqa": {"question": f"{name} {n}", "answer": {"value": f"v{n}", "aliases": [f"v{n}", f"w{n}"]}},
        "hellaswag": {"activity_label": name, "ctx_a": f"A man, {n}.", "ctx_b": "he", "endings": choices["text"],
                      "label": str(n % 4)},
        "race_high": {"article": f"{name} {n}", "problems": repr([problem, {**problem, "question": "And  _  ."}])},
        "mmlu": {"question": f" {name} {n}? ", "subject": "anatomy", "choices": choices["text"], "answer": n % 4},
    }  # fmt: skip
    return of_task[{"race_middle": "race_high", "arc_easy": "arc_challenge"}.get(task, task)]


def _splits(task: str) -> dict[str, list[Row]]:
    return {split: [_row(task, split, n) for n in range(number)] for split, number in _SIZES.items()}


def _prepare(folder: Path, task: str, splits: dict[str, list[Row]], **settings: Any) -> QuestionSet:
    for split, rows in splits.items():
        path = folder / "source" / task / f"{split}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = EvaluateConfig(questions=str(folder / "source"), tasks=[task], **settings)
    return prepare_questions(config, folder / "made")[0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shots", [0, 3])
@pytest.mark.parametrize("task", [task for task in FILES if "race" not in task])
def test_prompts_and_targets_are_lm_evals_own(task: str, shots: int, tmp_path: Path) -> None:
    splits = _splits(task)
    ours = prompts_and_targets(our_task(_prepare(tmp_path, task, splits, shots=shots), tmp_path / "t", shots))
    if task in ("nq_open", "triviaqa"):  # their generations end earlier here
        for asked, _ in ours:
            assert asked[0][1].pop("max_gen_toks") == 16
    assert ours == prompts_and_targets(stock_task(FILES[task], splits, shots))
    assert len(ours) == 20


def test_prompts_of_an_article_are_lm_evals_own(tmp_path: Path) -> None:
    splits = {"test": _splits("race_high")["test"]}
    for task in ("race_high", "race_middle"):
        ours = our_task(_prepare(tmp_path / task, task, splits), tmp_path / task / "t")
        assert prompts_and_targets(ours) == prompts_and_targets(stock_task(FILES[task], splits))


def test_a_question_keeps_its_prompt_when_fewer_are_asked(tmp_path: Path) -> None:
    splits = _splits("openbookqa")
    stock = prompts_and_targets(stock_task(FILES["openbookqa"], splits, shots=2))
    few = _prepare(tmp_path, "openbookqa", splits, shots=2, questions_per_task=3)
    ours = prompts_and_targets(our_task(few, tmp_path / "t", 2))
    assert len(ours) == 3
    assert [item for item in stock if item in ours] == ours
    other = _prepare(tmp_path, "openbookqa", splits, shots=2, questions_per_task=3, fewshot_seed=7)
    assert [item for item in stock if item in prompts_and_targets(our_task(other, tmp_path / "o", 2))] != ours


@pytest.mark.parametrize("shots", [0, 5])
def test_mmlu_shows_the_first_examples_of_the_subject_in_their_order(shots: int, tmp_path: Path) -> None:
    of_subject = {
        subject: {
            split: [
                {**_row("mmlu", f"{subject} {split}", n), "subject": subject} for n in range(_SIZES[split])
            ]
            for split in ("dev", "test")
        }
        for subject in ("virology", "anatomy")
    }
    mixed = {split: [row for of in of_subject.values() for row in of[split]] for split in ("dev", "test")}
    ours = prompts_and_targets(
        our_task(_prepare(tmp_path, "mmlu", mixed, shots=shots), tmp_path / "t", shots)
    )
    stock = [
        item
        for subject, splits in of_subject.items()
        for item in prompts_and_targets(stock_task(f"mmlu/continuation/mmlu_{subject}.yaml", splits, shots))
    ]
    assert ours == stock


def test_no_question_is_shown_its_own_answer(tmp_path: Path) -> None:
    rows = [_row("piqa", "same", n) for n in range(5)]
    prepared = _prepare(tmp_path, "piqa", {"train": rows, "validation": rows}, shots=4)
    for (context, _), *_ in (
        asked for asked, _ in prompts_and_targets(our_task(prepared, tmp_path / "t", 4))
    ):
        *shown, question = context.split("Question: ")[1:]
        assert len(shown) == 4
        assert not any(example.startswith(question) for example in shown)
