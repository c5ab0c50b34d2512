"""Every question as what is scored: prompts and answers as lm-eval builds them, and which one is right. Knows no model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datamask_pipeline.evaluation.answers import gold_place, open_answer
from datamask_pipeline.evaluation.config import QuestionsConfig
from datamask_pipeline.evaluation.harness import load_tasks, quiet
from datamask_pipeline.evaluation.questions import QuestionSet


@dataclass(frozen=True)
class ScoredQuestion:
    """One question.

    Attributes:
        task: Its benchmark.
        question_id: The question, equal for all models.
        pairs: Prompt and answer of each choice; of an open question that of `open_answer` alone.
        gold: Which of them is right.
    """

    task: str
    question_id: str
    pairs: tuple[tuple[str, str], ...]
    gold: int


def scored_questions(
    questions: Sequence[QuestionSet], work_directory: Path, config: QuestionsConfig
) -> list[ScoredQuestion]:
    """All questions by task in canonical order and by question id.

    Args:
        questions: From `prepare_questions`.
        work_directory: Task definitions and a log go here; may be deleted afterwards.
        config: Shots.
    """
    with quiet(work_directory / "harness.log"):
        tasks = load_tasks(questions, work_directory / "tasks", config)
        return [
            scored
            for item in questions
            for scored in sorted(_of_task(tasks[item.benchmark.task], item), key=lambda one: one.question_id)
        ]


def _of_task(task: Any, item: QuestionSet) -> Iterator[ScoredQuestion]:
    task.build_all_requests()
    by_document: dict[int, list[Any]] = {}
    for instance in task.instances:
        by_document.setdefault(instance.doc_id, []).append(instance)
    for instances in by_document.values():
        document = instances[0].doc
        if task.OUTPUT_TYPE == "multiple_choice":
            pairs, gold = tuple(instance.args for instance in instances), gold_place(task, document)
        else:
            pairs, gold = ((instances[0].args[0], open_answer(task, document)),), 0
        yield ScoredQuestion(item.benchmark.task, document["question_id"], pairs, gold)
