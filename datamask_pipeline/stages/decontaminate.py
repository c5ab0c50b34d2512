"""Decontaminate: takes the texts of evaluation questions into the record, for the pool to hold documents against.

Off unless `pool.decontaminate` names a folder of questions. Knows no document: questions that are made of held-out documents
(`evaluate.questions: local`) come after the pool and cannot be held against it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from datamask_pipeline import schema
from datamask_pipeline.evaluation.config import DecontaminationConfig, QuestionsConfig
from datamask_pipeline.stages.pool import PoolConfig
from datamask_pipeline.stages.questions import digest_of_files
from datamask_pipeline.storage import Ref, Store

STAGE: Final = "decontaminate"
VERSION: Final = "1"
#: So many questions of a task no file has: all are taken in, whatever `evaluate.questions_per_task` asks.
_ALL: Final = 10**9


def is_off(config: PoolConfig) -> bool:
    """Whether the flow goes without this stage."""
    return config.decontaminate is None


def check(config: PoolConfig) -> None:
    """Refuse tasks and question files that are not there.

    Raises:
        UnknownNameError: a task that does not exist.
        InputError: a folder or file is missing, cannot be read, or is not in its task's layout.
    """
    from datamask_pipeline.evaluation.checks import check_questions

    if config.decontaminate is not None:
        check_questions(_asked(config.decontaminate), "pool.decontaminate")


def run(config: PoolConfig, *, store: Store, release: str) -> Ref:
    """Take in every text of every question.

    Args:
        config: The questions.
        store: The record.
        release: The release's name.

    Returns:
        One row per text of a question: its task, the question's row, the text.

    Raises:
        InputError: a task has no file or no usable row.
        UnknownNameError: a task that does not exist.
    """
    assert config.decontaminate is not None, "the stage is off"
    wanted = config.decontaminate
    settings = {"tasks": wanted.tasks, "question_files": wanted.question_files}
    inputs: dict[str, Ref | str] = {"files": digest_of_files(_asked(wanted))}
    builder = store.begin(STAGE, release, version=VERSION, config=settings, inputs=inputs)
    if (done := builder.finished()) is not None:
        return done
    from datamask_pipeline.evaluation.overlap import fields
    from datamask_pipeline.evaluation.questions import prepare_questions

    rows, tasks = [], {}
    for each in prepare_questions(_asked(wanted), builder.scratch() / "questions"):
        task = each.benchmark.task
        found = fields(task, pq.read_table(each.file).to_pylist())
        rows += [{"task": task, "question": row, "text": text} for (_, row), text in found]
        tasks[task] = {"questions": each.num_questions, "rejected": each.num_rejected, "digest": each.digest}
    table = pa.Table.from_pylist(rows, schema=schema.QUESTION_TEXTS)
    part = builder.write_part("00000", table.to_batches(), schema.QUESTION_TEXTS)
    return builder.commit([part], metadata={"source": Path(wanted.questions).name, "tasks": tasks})


def told(manifest: Mapping[str, Any]) -> Iterator[str]:
    """How many questions documents are held against."""
    tasks = manifest["metadata"]["tasks"]
    number = sum(about["questions"] for about in tasks.values())
    yield f"documents are held against {number} questions of {len(tasks)} tasks"


def _asked(config: DecontaminationConfig) -> QuestionsConfig:
    return QuestionsConfig(
        questions=config.questions,
        question_files=config.question_files,
        hub=config.hub,
        tasks=config.tasks,
        questions_per_task=_ALL,
    )
