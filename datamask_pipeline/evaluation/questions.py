"""Question sets made ready for the harness: read, checked, chosen, written in the stock columns.

Knows no model. Rows balance: those read are rejected, each with a reason, or part of an item.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from datamask_pipeline.errors import InputError
from datamask_pipeline.evaluation.benchmarks import Benchmark, benchmarks_named
from datamask_pipeline.evaluation.config import LOCAL, QuestionsConfig
from datamask_pipeline.evaluation.examples import drawn_examples, first_examples
from datamask_pipeline.evaluation.layouts.base import BadRow, Item, LeftOut, Row
from datamask_pipeline.evaluation.local_questions import write_local_questions
from datamask_pipeline.evaluation.question_files import splits_of
from datamask_pipeline.evaluation.reading import read_rows
from datamask_pipeline.evaluation.splits import Split


@dataclass(frozen=True)
class RejectedRow:
    """A row that is not asked, and why."""

    task: str
    file: str
    row: int
    reason: str


@dataclass(frozen=True)
class SourceFile:
    """A file that was read.

    Attributes:
        file: Its path below the folder of the questions, or in the repository on the hub.
        split: The split that its name states; None: none.
        use: `asked`, or `examples` for solved examples before the questions.
        rows: Its rows.
    """

    file: str
    split: str | None
    use: str
    rows: int


@dataclass(frozen=True)
class QuestionSet:
    """The questions one task asks.

    Attributes:
        source: `local`, the name of the directory they came from, or repository and commit on the hub.
        split: The split asked; None: the source states none.
        files: Every file read.
        files_beside: Question files that lie beside them and were not read.
        file: Parquet in the stock task's columns, one row a question, in the split's order.
        demonstrations: The same for the solved examples, as many rows a question as it shows; or None.
        num_read: Rows of the split asked.
        num_examples_read: Rows of the split of solved examples.
        num_rejected: Rows of either refused; `rejected` names each.
        num_items: Items that the other rows of the split asked make (one for several rows where rows share a passage).
        num_questions: Items asked.
        chance: Expected accuracy of guessing, in 0..1.
        digest: sha256 of the asked rows and their solved examples.
    """

    benchmark: Benchmark
    source: str
    split: str | None
    files: tuple[SourceFile, ...]
    files_beside: tuple[str, ...]
    file: Path
    demonstrations: Path | None
    num_read: int
    num_examples_read: int
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
        config = config.model_copy(update={"questions": str(source)})
    for named in (config.question_files, config.demonstration_files):
        benchmarks_named(named)
    return [_prepare(benchmark, directory, config) for benchmark in benchmarks_named(config.tasks)]


def _prepare(benchmark: Benchmark, directory: Path, config: QuestionsConfig) -> QuestionSet:
    task, shots = benchmark.task, config.shots
    asked_of, *others = splits_of(config, benchmark)
    read = _read(benchmark, asked_of, config.seed, use="asked")
    ranked = sorted(read.items, key=lambda item: _rank(item, config.seed))
    asked, rest = ranked[: config.questions_per_task], ranked[config.questions_per_task :]
    examples: list[list[Row]] = [[] for _ in asked]
    shown_of = _Read([], [], [])
    if shots:
        if others:
            shown_of = _read(benchmark, others[0], config.seed, use="examples")
        elif 0 < len(ranked) <= shots:
            raise InputError(
                f"task {task!r} has {len(ranked)} questions in one file; {shots} solved examples need {shots + 1}",
                file=str(asked_of.files[0]),
                remedy="lower shots, or name a file of solved examples in demonstration_files",
            )
        elif len(rest) < shots:
            # A set of one file gives up questions to have examples that are not asked.
            asked, rest = ranked[:-shots], ranked[-shots:]
    asked = sorted(asked, key=lambda item: item.place)
    rejected = [*read.rejected, *shown_of.rejected]
    if not asked:
        raise InputError(
            f"no usable question for task {task!r}: {_reasons(rejected)}",
            file=str(asked_of.files[0]),
            remedy="see the layouts in docs/evaluation.md",
        )
    if shots and shown_of.files:
        examples = drawn_examples(
            asked, read.items, shown_of.items, shots, benchmark=benchmark, seed=config.fewshot_seed
        )
    elif shots:
        examples = first_examples(asked, rest, shots, benchmark=benchmark)
    rows = [item.row for item in asked]
    identities = [_identity(row) for row in rows]
    shown = [
        {**row, "before": identity[:16]}
        for identity, of in zip(identities, examples, strict=True)
        for row in of
    ]
    numbered = [{**row, "question_id": identity[:16]} for identity, row in zip(identities, rows, strict=True)]
    return QuestionSet(
        benchmark=benchmark,
        source=asked_of.source,
        split=asked_of.name,
        files=(*read.files, *shown_of.files),
        files_beside=_names_beside(asked_of, [*read.files, *shown_of.files]),
        file=_write(directory / f"{task}.parquet", numbered, task),
        demonstrations=_write(directory / f"{task}.demonstrations.parquet", shown, task) if shown else None,
        num_read=sum(file.rows for file in read.files),
        num_examples_read=sum(file.rows for file in shown_of.files),
        num_rejected=len(rejected),
        num_items=len(read.items),
        num_questions=len(asked),
        chance=sum(1 / item.num_choices if item.num_choices else 0.0 for item in asked) / len(asked),
        digest=_digest(identities, examples),
        rejected=tuple(rejected),
    )


@dataclass(frozen=True)
class _Read:
    """What one split gave: its items in its order, what was refused, and the files."""

    items: list[Item]
    rejected: list[RejectedRow]
    files: list[SourceFile]


def _read(benchmark: Benchmark, split: Split, seed: int, *, use: str) -> _Read:
    """Read a split; a question that stands in two rows is asked once."""
    layout = benchmark.make_layout()
    items: list[Item] = []
    rejected: list[RejectedRow] = []
    files: list[SourceFile] = []
    seen: set[str] = set()
    place = 0
    for file in split.files:
        name, num_rows = split.name_of(file), 0
        for number, row in read_rows(file, hendrycks=layout.hendrycks):
            num_rows += 1
            try:
                item = replace(_item(layout.read, row), place=place)
                # Examples are drawn from every row of their split, as lm-eval does.
                if use == "asked" and _identity(item.row) in seen:
                    raise BadRow("repeats an earlier row")
            except BadRow as reason:
                rejected.append(RejectedRow(benchmark.task, name, number, str(reason)))
                place -= isinstance(reason, LeftOut)  # lm-eval counts those that it does not leave out
            else:
                seen.add(_identity(item.row))
                items.append(item)
            place += 1
        files.append(SourceFile(name, split.name, use, num_rows))
    return _Read(layout.finish(items, seed) if items else [], rejected, files)


def _names_beside(asked: Split, read: list[SourceFile]) -> tuple[str, ...]:
    names = {file.file for file in read}
    beside = [asked.name_of(path) for path in asked.others]
    return tuple(name for name in beside if name not in names)


def _digest(identities: list[str], examples: list[list[Row]]) -> str:
    """Of the questions with what stands before each, whatever their order."""
    lines = [
        " ".join([identity, *map(_identity, rows)])
        for identity, rows in zip(identities, examples, strict=True)
    ]
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def _item(read: object, row: Row | str) -> Item:
    if isinstance(row, str):
        raise BadRow(row)
    assert callable(read)
    item = read(row)
    assert isinstance(item, Item)
    try:
        _identity(item.row)
    except UnicodeEncodeError as error:
        raise BadRow("no Unicode: half of a surrogate pair") from error
    return item


def _identity(row: Row) -> str:
    return hashlib.sha256(json.dumps(row, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _rank(item: Item, seed: int) -> str:
    """A hash by which questions are chosen: no other row, file or order has a say in it."""
    return hashlib.sha256(f"{seed}:{_identity(item.row)}".encode()).hexdigest()


def _write(path: Path, rows: list[Row], task: str) -> Path:
    """Parquet, not JSON: a JSON reader takes a column of answers like 1999-01-01 for timestamps."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        table = pa.Table.from_pylist(rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(
            f"a column of the rows for task {task!r} holds values of several types: {error}",
            remedy="write all values of a column in one type, or leave out columns that the task does not read",
        ) from error
    pq.write_table(table, path)
    return path


def _reasons(rejected: list[RejectedRow]) -> str:
    counts = Counter(row.reason for row in rejected)
    return (
        "; ".join(f"{count} rows: {reason}" for reason, count in counts.most_common(3))
        or "the files are empty"
    )
