"""Question sets made ready for the harness: read, checked, chosen, written in the stock columns.

Knows no model. Rows balance: those read are rejected, each with a reason, or part of an item.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from datamask_pipeline.errors import InputError
from datamask_pipeline.evaluation.benchmarks import Benchmark, benchmarks_named
from datamask_pipeline.evaluation.checks import question_folder
from datamask_pipeline.evaluation.config import LOCAL, QuestionsConfig
from datamask_pipeline.evaluation.layouts.base import BadRow, Item, Row
from datamask_pipeline.evaluation.local_questions import write_local_questions
from datamask_pipeline.evaluation.reading import find_files, read_rows


@dataclass(frozen=True)
class RejectedRow:
    """A row that is not asked, and why."""

    task: str
    file: str
    row: int
    reason: str


@dataclass(frozen=True)
class QuestionSet:
    """The questions one task asks.

    Attributes:
        source: `local`, or the name of the directory they came from.
        file: Parquet in the stock task's columns, one row a question.
        demonstrations: The same for the solved examples, or None.
        num_read: Rows in the source files, those of solved examples included.
        num_rejected: Rows refused; `rejected` names each.
        num_items: Items the other rows make (one for several rows where rows share a passage).
        num_questions: Items asked.
        chance: Expected accuracy of guessing, in 0..1.
        digest: sha256 of the asked rows and the solved examples.
    """

    benchmark: Benchmark
    source: str
    file: Path
    demonstrations: Path | None
    num_read: int
    num_rejected: int
    num_items: int
    num_questions: int
    chance: float
    digest: str
    rejected: tuple[RejectedRow, ...]


def prepare_questions(
    config: QuestionsConfig, directory: Path, documents: Iterable[tuple[str, str]] = ()
) -> list[QuestionSet]:
    """Prepare the question sets of every configured task, in canonical order.

    Args:
        config: What to ask, how much of it, and with which seed.
        directory: Receives `<task>.parquet` and, for local sets, their source in `local/`.
        documents: (id, text) of held-out documents; read for local sets only.

    Raises:
        InputError: No file for a task, no usable row, or too few rows for the examples asked for.
        UnknownNameError: A task that does not exist.
    """
    if config.questions == LOCAL:
        source = directory / LOCAL
        num_questions = config.questions_per_task + config.shots
        write_local_questions(documents, source, num_questions=num_questions, seed=config.seed)
    else:
        source = question_folder(config)
    for named in (config.question_files, config.demonstration_files):
        benchmarks_named(named)
    return [_prepare(benchmark, source, directory, config) for benchmark in benchmarks_named(config.tasks)]


def _prepare(benchmark: Benchmark, source: Path, directory: Path, config: QuestionsConfig) -> QuestionSet:
    task = benchmark.task
    files = find_files(source, config.question_files.get(task), task)
    items, rejected, num_read = _read(benchmark, files, source, config.seed)
    asked, rest = items[: config.questions_per_task], items[config.questions_per_task :]
    if task in config.demonstration_files:
        own = find_files(source, config.demonstration_files[task], task)
        rest, more_rejected, more_read = _read(benchmark, own, source, config.seed)
        items, rejected, num_read = items + rest, rejected + more_rejected, num_read + more_read
        questions = {_identity(item.row) for item in asked}
        rest = [item for item in rest if _identity(item.row) not in questions]
    elif len(rest) < config.shots:
        # A small set gives up questions to have examples that are not asked.
        asked, rest = items[: -config.shots], items[-config.shots :]
    if not asked:
        raise InputError(
            f"no usable question for task {task!r}: {_reasons(rejected)}",
            file=str(files[0]),
            remedy="see the layouts in the documentation of the benchmarks",
        )
    rows, shown = [item.row for item in asked], _demonstrations(rest, config.shots, task)
    if task == "mmlu":
        rows, shown = _with_subject_examples(rows, rest, config.shots), []
    lines = [json.dumps(row, sort_keys=True, ensure_ascii=False) for row in rows + shown]
    return QuestionSet(
        benchmark=benchmark,
        source=LOCAL if config.questions == LOCAL else source.name,
        file=_write(directory / f"{task}.parquet", rows),
        demonstrations=_write(directory / f"{task}.demonstrations.parquet", shown) if shown else None,
        num_read=num_read,
        num_rejected=len(rejected),
        num_items=len(items),
        num_questions=len(asked),
        chance=sum(1 / item.num_choices if item.num_choices else 0.0 for item in asked) / len(asked),
        digest=hashlib.sha256("\n".join(lines).encode()).hexdigest(),
        rejected=tuple(rejected),
    )


def _read(
    benchmark: Benchmark, files: Iterable[Path], source: Path, seed: int
) -> tuple[list[Item], list[RejectedRow], int]:
    """Items of all files by rank; a question that stands in two rows is asked once."""
    layout = benchmark.make_layout()
    items: list[Item] = []
    rejected: list[RejectedRow] = []
    seen: set[str] = set()
    num_read = 0
    for file in files:
        for number, row in read_rows(file):
            num_read += 1
            try:
                item = _item(layout.read, row)
                if (identity := _identity(item.row)) in seen:
                    raise BadRow("repeats an earlier row")
            except BadRow as reason:
                name = file.relative_to(source).as_posix()
                rejected.append(RejectedRow(benchmark.task, name, number, str(reason)))
                continue
            seen.add(identity)
            items.append(item)
    if items:
        items = layout.finish(items, seed)
    return sorted(items, key=lambda item: _rank(item, seed)), rejected, num_read


def _item(read: object, row: Row | str) -> Item:
    if isinstance(row, str):
        raise BadRow(row)
    assert callable(read)
    item = read(row)
    assert isinstance(item, Item)
    return item


def _identity(row: Row) -> str:
    return hashlib.sha256(json.dumps(row, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _rank(item: Item, seed: int) -> str:
    """A hash by which questions are chosen: no other row, file or order has a say in it."""
    return hashlib.sha256(f"{seed}:{_identity(item.row)}".encode()).hexdigest()


def _demonstrations(rest: list[Item], shots: int, task: str) -> list[Row]:
    if len(rest) < shots:
        raise InputError(
            f"task {task!r} has {len(rest)} solved examples left for {shots} shots",
            remedy="lower shots, or name a file in demonstration_files",
        )
    return [item.row for item in rest[:shots]]


def _with_subject_examples(rows: list[Row], rest: list[Item], shots: int) -> list[Row]:
    """MMLU shows examples of the question's own subject, in the stock wording."""
    solved: dict[str, list[str]] = {}
    for item in rest:
        row = item.row
        text = f"Question: {row['question'].strip()}\nAnswer: {row['choices'][row['answer']]}\n\n"
        solved.setdefault(row["subject"], []).append(text)
    for row in rows:
        if len(solved.get(row["subject"], [])) < shots:
            raise InputError(
                f"MMLU's subject {row['subject']!r} has fewer than {shots} solved examples left",
                field="subject",
                remedy="lower shots, or name the dev files in demonstration_files",
            )
    return [{**row, "demonstrations": "".join(solved.get(row["subject"], [])[:shots])} for row in rows]


def _write(path: Path, rows: list[Row]) -> Path:
    """Parquet, not JSON: a JSON reader takes a column of answers like 1999-01-01 for timestamps."""
    path.parent.mkdir(parents=True, exist_ok=True)
    numbered = [{"question_id": _identity(row)[:16], **row} for row in rows]
    pq.write_table(pa.Table.from_pylist(numbered), path)
    return path


def _reasons(rejected: list[RejectedRow]) -> str:
    counts = Counter(row.reason for row in rejected)
    return (
        "; ".join(f"{count} rows: {reason}" for reason, count in counts.most_common(3))
        or "the files are empty"
    )
