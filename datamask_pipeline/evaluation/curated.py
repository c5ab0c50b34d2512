"""Curated documents out of files: read, checked, each text once. Knows no question and no model.

Rows balance: those read become a document or are rejected, each with a reason.
"""

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from datamask_pipeline import schema
from datamask_pipeline.errors import InputError
from datamask_pipeline.evaluation.layouts.base import BadRow, Row
from datamask_pipeline.evaluation.questions import RejectedRow, SourceFile
from datamask_pipeline.evaluation.reading import SUFFIXES, read_rows

_FIRST_ROWS: Final = 100
_ID_DIGITS: Final = 16


@dataclass(frozen=True)
class CuratedDocuments:
    """The documents of some files.

    Attributes:
        source: Name of the file, folder or glob.
        files: Every file read.
        num_read: Rows of these files.
        num_documents: Rows that are a document.
        rejected: The others.
        digest: sha256 of the texts, whatever their order.
        documents: Id and text of each, in the order of the rows; the id is the start of the sha256 of the text.
    """

    source: str
    files: tuple[SourceFile, ...]
    num_read: int
    num_documents: int
    rejected: tuple[RejectedRow, ...]
    digest: str
    documents: tuple[tuple[str, str], ...]


def read_curated(given: str, column: str) -> CuratedDocuments:
    """Read every document.

    Args:
        given: A file, folder or glob.
        column: Where the text stands.

    Raises:
        InputError: no such file; one cannot be read or has no such column; or no row is a document.
    """
    files: list[SourceFile] = []
    rejected: list[RejectedRow] = []
    found: dict[str, str] = {}
    for path, name in _named(given):
        columns: dict[str, None] = {}
        num_rows = 0
        for number, row in read_rows(path):
            num_rows += 1
            if isinstance(row, dict):
                columns.update(dict.fromkeys(row))
            try:
                text = _text(row, column)
                if (digest := _sha256(text)) in found:
                    raise BadRow("repeats an earlier row")
            except BadRow as reason:
                rejected.append(RejectedRow(schema.CURATED, name, number, str(reason)))
            else:
                found[digest] = text
        if num_rows:
            _refuse_without(column, path, columns)
        files.append(SourceFile(name, None, "asked", num_rows))
    if not found:
        reasons = "; ".join(dict.fromkeys(row.reason for row in rejected)) or "the files are empty"
        raise InputError(
            f"no row is a document: {reasons}", file=given, field=column, remedy="name other files"
        )
    return CuratedDocuments(
        source=Path(given).name,
        files=tuple(files),
        num_read=sum(file.rows for file in files),
        num_documents=len(found),
        rejected=tuple(rejected),
        digest=_sha256("\n".join(sorted(found))),
        documents=tuple((digest[:_ID_DIGITS], text) for digest, text in found.items()),
    )


def check_curated(given: str, column: str, section: str = "evaluate") -> None:
    """Refuse files that are not there, cannot be read, or have no such column in their first rows.

    Args:
        given: A file, folder or glob.
        column: Where the text stands.
        section: Where the settings are, for messages.

    Raises:
        InputError: no such file; one cannot be read or has no such column.
    """
    for path, _ in _named(given, section):
        rows = [row for _, row in islice(read_rows(path), _FIRST_ROWS)]
        if rows:
            columns = [name for row in rows if isinstance(row, dict) for name in row]
            _refuse_without(column, path, columns, section)


def digest_of_curated(given: str) -> str:
    """sha256 of the files that will be read, and of their names; where they lie does not matter.

    Raises:
        InputError: no such file.
    """
    digest = hashlib.sha256()
    for path, name in _named(given):
        digest.update(name.encode() + b"\0")
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def write_documents(found: CuratedDocuments, path: Path) -> None:
    """Write ``document_id`` and ``text`` of each as Parquet."""
    names, texts = zip(*found.documents, strict=True)
    pq.write_table(pa.table({"document_id": names, "text": texts}), path)


def read_documents(path: Path) -> list[tuple[str, str]]:
    """Id and text of each document, as `write_documents` wrote them."""
    columns = pq.read_table(path).to_pydict()
    return list(zip(columns["document_id"], columns["text"], strict=True))


def _text(row: Row | str, column: str) -> str:
    if isinstance(row, str):
        raise BadRow(row)
    text = row.get(column)
    if not isinstance(text, str) or not text.strip():
        raise BadRow("no text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadRow("no Unicode: half of a surrogate pair") from error
    return text


def _refuse_without(column: str, path: Path, columns: Iterable[str], section: str = "evaluate") -> None:
    names = {str(name) for name in columns}
    if column not in names:
        there = ", ".join(sorted(names)) or "none"
        raise InputError(
            f"the file of curated documents has no such column; there are: {there}",
            file=str(path),
            field=column,
            remedy=f"name the one that holds the text in {section}.curated_column",
        )


def _named(given: str, section: str = "evaluate") -> Iterator[tuple[Path, str]]:
    """Each file with its name below the folder of all, sorted by it."""
    path = Path(given)
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file()]
    elif path.is_file():
        files = [path]
    else:
        files = [file for file in map(Path, glob.glob(given, recursive=True)) if file.is_file()]
    wrong = next((file for file in files if file.suffix not in SUFFIXES), None)
    if wrong is not None or not files:
        raise InputError(
            "no file of curated documents is there" if wrong is None else "the file has another ending",
            file=given if wrong is None else str(wrong),
            field=f"{section}.curated",
            remedy=f"give a file, a folder or a glob of files that end in {', '.join(SUFFIXES)}",
        )
    root = Path(os.path.commonpath([file.parent for file in files]))
    named = sorted(((file, file.relative_to(root).as_posix()) for file in files), key=lambda one: one[1])
    for _, name in named:
        if (spelt := name.encode(errors="backslashreplace").decode()) != name:
            raise InputError("the name of a file is not UTF-8", file=spelt, remedy="rename it")
    return iter(named)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
