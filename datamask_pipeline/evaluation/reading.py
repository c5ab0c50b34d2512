"""Rows of files of questions or documents, whatever their format.

Knows no benchmark: a file in, numbered rows or reasons out.
"""

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from datamask_pipeline.errors import InputError
from datamask_pipeline.evaluation.layouts.base import Row
from datamask_pipeline.sources.formats.jsonl import each_key_once

SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")
#: A mark of the byte order that begins a file is none of its first row.
_ENCODING = "utf-8-sig"
_HENDRYCKS = ["question", "A", "B", "C", "D", "answer"]


def read_rows(path: Path, *, hendrycks: bool = False) -> Iterator[tuple[int, Row | str]]:
    """Each row with its number from 0, or, instead of a row, the reason why there is none.

    Args:
        path: The file; its ending says the format.
        hendrycks: Whether the first line of a CSV is its header only where it names question and answer, and the columns
            are Hendrycks's where it does not; else it is one whatever it says.

    Raises:
        InputError: The file as a whole cannot be read.
    """
    readers = {".jsonl": _jsonl, ".json": _json, ".parquet": _parquet}
    try:
        rows = _csv(path, hendrycks) if path.suffix == ".csv" else readers[path.suffix](path)
        for number, row in enumerate(rows):
            if isinstance(row, dict):
                named = {key.strip() if isinstance(key, str) else key: row[key] for key in row}
                yield (
                    number,
                    named if len(named) == len(row) else "a key stands twice, but for blanks around it",
                )
            else:
                yield number, row
    except InputError:
        raise
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        raise InputError(
            f"the file cannot be read: {error}", file=str(path), remedy="replace it by a whole copy"
        ) from error


def _jsonl(path: Path) -> Iterator[Row | str]:
    with path.open(encoding=_ENCODING) as lines:
        for line in lines:
            if line.strip():
                yield _parsed(line)


def _parsed(line: str) -> Row | str:
    try:
        row = json.loads(line, object_pairs_hook=each_key_once)
    except json.JSONDecodeError as error:
        return f"no JSON: {error.msg}"
    except (
        ValueError,
        RecursionError,
    ) as error:  # a number of thousands of digits, brackets in brackets, a key twice
        return f"no JSON: {error}"
    return row if isinstance(row, dict) else "no JSON object"


def _json(path: Path) -> Iterator[Row | str]:
    rows = json.loads(path.read_text(encoding=_ENCODING), object_pairs_hook=each_key_once)
    if not isinstance(rows, list):
        raise InputError("a .json file must hold one list of objects", file=str(path))
    for row in rows:
        yield row if isinstance(row, dict) else "no JSON object"


def _parquet(path: Path) -> Iterator[Row | str]:
    for batch in pq.ParquetFile(path).iter_batches(batch_size=1024):
        yield from batch.to_pylist()


def _csv(path: Path, hendrycks: bool) -> Iterator[Row | str]:
    """With a header, or without one in Hendrycks's six columns; a missing subject is read off the name.

    A quotation mark inside a field is doubled, as Python and pandas write it.
    """
    subject = path.stem
    for split in ("_test", "_dev", "_val"):
        subject = subject.removesuffix(split)
    csv.field_size_limit(sys.maxsize)  # a document may be longer than the usual 131 072 characters
    with path.open(encoding=_ENCODING, newline="") as stream:
        header = _HENDRYCKS
        for number, cells in enumerate(csv.reader(stream)):
            if number == 0 and (not hendrycks or {"question", "answer"} <= {cell.strip() for cell in cells}):
                header = [cell.strip() for cell in cells]
                if twice := sorted({name for name in header if name and header.count(name) > 1}):
                    raise InputError(
                        "a column stands twice",
                        file=str(path),
                        field=", ".join(twice),
                        remedy="rename or drop one of the two",
                    )
            elif len(cells) != len(header):
                yield f"{len(cells)} cells where {len(header)} are expected"
            else:
                beside = {"subject": subject} if hendrycks else {}
                yield {**beside, **dict(zip(header, cells, strict=True))}
