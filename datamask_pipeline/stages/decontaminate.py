"""Decontaminate: takes evaluation questions and curated documents into the record, for the pool to hold documents against.

Off unless `pool.decontaminate` names some. Knows no document: questions that are made of held-out documents
(`evaluate.questions: local`) come after the pool and cannot be held against it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from datamask_pipeline import schema
from datamask_pipeline.errors import InputError
from datamask_pipeline.evaluation.config import DecontaminationConfig, QuestionsConfig
from datamask_pipeline.stages.pool import PoolConfig
from datamask_pipeline.stages.questions import digest_of_files
from datamask_pipeline.storage import Ref, Store

STAGE: Final = "decontaminate"
VERSION: Final = "5"
#: So many questions of a task no file has: all are taken in, whatever `evaluate.questions_per_task` asks.
_ALL: Final = 10**9


def is_off(config: PoolConfig) -> bool:
    """Whether the flow goes without this stage."""
    return config.decontaminate is None


def check(config: PoolConfig) -> None:
    """Refuse tasks, question files and curated documents that are not there.

    Raises:
        UnknownNameError: a task that does not exist.
        InputError: a folder or file is missing, cannot be read, or is not in its task's layout.
    """
    from datamask_pipeline.evaluation.checks import check_questions
    from datamask_pipeline.evaluation.curated import check_curated

    if (wanted := config.decontaminate) is None:
        return
    if wanted.questions is not None:
        try:
            check_questions(_questions(wanted, wanted.questions), "pool.decontaminate")
        except InputError as error:
            # `evaluate` has a `question_files` of its own.
            raise error.within("pool.decontaminate") from error
    if wanted.curated is not None:
        check_curated(wanted.curated, wanted.curated_column, "pool.decontaminate")


def asked(config: PoolConfig) -> Iterator[tuple[str, str, str]]:
    """Of each input its name, the setting that it comes from, and the digest of what stands in the files.

    Raises:
        UnknownNameError: a task that does not exist.
        InputError: a folder or file is missing or cannot be read.
    """
    if (wanted := config.decontaminate) is None:
        return
    if wanted.questions is not None:
        questions = digest_of_files(_questions(wanted, wanted.questions))
        yield "files", "questions of pool.decontaminate.questions", questions
    if wanted.curated is not None:
        from datamask_pipeline.evaluation.curated import digest_of_curated

        yield "curated", "documents of pool.decontaminate.curated", digest_of_curated(wanted.curated)


def compared(config: PoolConfig, recorded: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Settings by name, as a manifest states them and as they are now; where files lie does not matter."""
    if (wanted := config.decontaminate) is not None:
        for name in ("tasks", "question_files", "curated_column"):
            if name in recorded:
                yield f"decontaminate.{name}", recorded[name], getattr(wanted, name)


def run(config: PoolConfig, *, store: Store, release: str) -> Ref:
    """Take in every text of every question, and every curated document.

    Args:
        config: The questions and documents.
        store: The record.
        release: The release's name.

    Returns:
        One row per text of a question, or document: its task, the question's row, the text.

    Raises:
        InputError: a task has no file or no usable row, or there is no curated document.
        UnknownNameError: a task that does not exist.
    """
    assert config.decontaminate is not None, "the stage is off"
    wanted = config.decontaminate
    questions = None if wanted.questions is None else _questions(wanted, wanted.questions)
    settings: dict[str, Any] = {"tasks": wanted.tasks, "question_files": wanted.question_files}
    inputs: dict[str, Ref | str] = {name: digest for name, _, digest in asked(config)}
    if wanted.curated is not None:
        settings["curated_column"] = wanted.curated_column
    builder = store.begin(STAGE, release, version=VERSION, config=settings, inputs=inputs)
    if (done := builder.finished()) is not None:
        return done
    from datamask_pipeline.evaluation.overlap import fields
    from datamask_pipeline.evaluation.questions import prepare_questions

    rows, tasks = [], {}
    for each in [] if questions is None else prepare_questions(questions, builder.scratch() / "questions"):
        task = each.benchmark.task
        found = fields(task, pq.read_table(each.file).to_pylist())
        rows += [{"task": task, "question": row, "text": text} for (_, row), text in found]
        tasks[task] = {"questions": each.num_questions, "rejected": each.num_rejected, "digest": each.digest}
    metadata: dict[str, Any] = {"tasks": tasks}
    if wanted.questions is not None:
        metadata["source"] = Path(wanted.questions).name
    if wanted.curated is not None:
        from datamask_pipeline.evaluation.curated import read_curated

        curated = read_curated(wanted.curated, wanted.curated_column)
        rows += [
            {"task": schema.CURATED, "question": row, "text": text}
            for row, (_, text) in enumerate(curated.documents)
        ]
        metadata["curated"] = {
            "source": curated.source,
            "documents": curated.num_documents,
            "rejected": len(curated.rejected),
            "digest": curated.digest,
        }
    table = pa.Table.from_pylist(rows, schema=schema.QUESTION_TEXTS)
    part = builder.write_part("00000", table.to_batches(), schema.QUESTION_TEXTS)
    return builder.commit([part], metadata=metadata)


def told(manifest: Mapping[str, Any]) -> Iterator[str]:
    """How many questions and curated documents the pool's documents are held against."""
    tasks, curated = manifest["metadata"]["tasks"], manifest["metadata"].get("curated")
    number = sum(about["questions"] for about in tasks.values())
    against = [f"{number} questions of {len(tasks)} tasks"] if tasks else []
    against += [] if curated is None else [f"{curated['documents']} curated documents"]
    yield f"documents are held against {' and '.join(against)}"


def _questions(config: DecontaminationConfig, questions: str) -> QuestionsConfig:
    return QuestionsConfig(
        questions=questions,
        question_files=config.question_files,
        hub=config.hub,
        tasks=config.tasks,
        questions_per_task=_ALL,
    )
