"""JSON Lines, plain or compressed, as batches in FineWeb's schema. Knows no file system.

A line that is no object or too long, or holds a value of another type, becomes a ``Reject``; the lines around it stand.
Keys beyond the schema: those declared become typed columns, all others stay together as JSON text in
``extra_json``, numbers with a fraction as float64 holds them; one that is too large for it is rejected. NaN and
Infinity, which many tools write and JSON does not know, are null there.
"""

import codecs
import json
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

import pyarrow as pa

from datamask_pipeline.errors import InputError
from datamask_pipeline.schema import EXTRA_JSON, FINEWEB
from datamask_pipeline.sources.base import Reject, SourceBatch
from datamask_pipeline.sources.columns import ESSENTIAL, WHOLE, missing_column
from datamask_pipeline.sources.filters import word_or_length
from datamask_pipeline.sources.formats.base import Columns, FileFormat, ShardFile
from datamask_pipeline.sources.formats.lines import MOST_LINE_BYTES, raw_lines

#: A batch is handed on at this many bytes of lines, whatever ``batch_rows`` says, so that a few huge
#: documents do not make a huge batch.
BATCH_BYTES: Final = 32 << 20
#: Where none of so many records has a key, the file has none.
HEAD_LINES: Final = 100
#: How compressed bytes begin, by what, and the ending of a name that says so.
_COMPRESSED: Final = {b"\x1f\x8b": ("gzip", ".gz"), b"\x28\xb5\x2f\xfd": ("Zstandard", ".zst")}
#: What a number becomes in a column.
_NUMBERS: Final[Mapping[pa.DataType, Callable[[Any], Any]]] = {pa.int64(): int, pa.float64(): float}
#: What a value of JSON is called.
_KINDS: Final = {
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


class JsonLines(FileFormat):
    """One object a line."""

    name = "jsonl"
    suffixes = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".json.gz")

    def extra_fields(self, file: ShardFile, columns: Columns) -> list[pa.Field]:
        del file  # whose lines nothing describes
        return [*columns.declared, EXTRA_JSON]

    def read(
        self, file: ShardFile, columns: Columns, *, crawl: str, extras: Sequence[pa.Field], batch_rows: int
    ) -> Generator[SourceBatch]:
        del crawl
        with file.open() as stream:
            yield from read_jsonl(
                raw_lines(stream, file.location),
                file.location,
                renamed=columns.renamed,
                declared=columns.declared,
                extras=extras,
                batch_rows=batch_rows,
            )


def read_jsonl(
    lines: Iterable[bytes],
    location: str,
    *,
    renamed: Mapping[str, str],
    declared: Sequence[pa.Field],
    extras: Sequence[pa.Field],
    batch_rows: int,
) -> Iterator[SourceBatch]:
    """The file's rows in order; blank lines are not rows.

    Args:
        lines: The raw lines.
        location: The file, for messages.
        renamed: FineWeb's column name -> the file's key for it.
        declared: Extra keys that become typed columns.
        extras: Every extra column of the crawl, ``declared`` and ``extra_json`` among them.
        batch_rows: Rows a batch holds at most.

    Raises:
        InputError: none of the first records has a key without which there is no document, or the bytes are compressed.
    """
    builder = _BatchBuilder(renamed, declared, extras)
    row = -1
    lines = iter(lines)
    head = _head(lines)
    _check_head(head, location, renamed)
    for number, line in enumerate(chain(head, lines)):
        if number == 0:
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line.strip():
            continue
        row += 1
        if len(line) > MOST_LINE_BYTES:
            builder.reject(row, None, "too_large", f"the line has more than {MOST_LINE_BYTES} bytes")
        elif isinstance(outcome := parse_line(line), str):
            builder.reject(row, None, "malformed_json", outcome)
        else:
            builder.add(row, outcome)
        if builder.num_rows >= batch_rows or builder.grew(len(line)) >= BATCH_BYTES:
            yield builder.take()
    if builder.num_rows:
        yield builder.take()


def parse_line(line: bytes) -> dict[str, Any] | str:
    """The object on a line, or what is wrong with it."""
    try:
        value = json.loads(line.decode("utf-8"), object_pairs_hook=each_key_once, parse_float=_finite)
    except UnicodeDecodeError as error:
        return f"byte {error.start} is not UTF-8"
    except (ValueError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"
    return value if isinstance(value, dict) else f"a JSON object is needed, this is a {type(value).__name__}"


def each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs as a mapping.

    Raises:
        ValueError: a key stands twice; of its two values a mapping would lose the first.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(
            f"key {word_or_length(next(key for key in keys if keys.count(key) > 1))} stands twice"
        )
    return found


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"number {digits[:80]} is too large for float64")
    return value


def _head(lines: Iterator[bytes]) -> list[bytes]:
    head, num_bytes = [], 0
    for line in islice(lines, HEAD_LINES):
        head.append(line)
        num_bytes += len(line)
        if num_bytes >= BATCH_BYTES:
            break
    return head


def _check_head(head: Sequence[bytes], location: str, renamed: Mapping[str, str]) -> None:
    """Refuse what would be one rejected row after another for one reason, which is the file's and not theirs."""
    for magic, (kind, suffix) in _COMPRESSED.items():
        if head and head[0].startswith(magic):
            raise InputError(
                f"it is compressed by {kind}, and its name does not say so",
                file=location,
                remedy=f"give it a name that ends in .jsonl{suffix}",
            )
    parsed = (parse_line(line.removeprefix(codecs.BOM_UTF8)) for line in head if len(line) <= MOST_LINE_BYTES)
    records = [record for record in parsed if isinstance(record, dict)]
    for name in ESSENTIAL:
        key = renamed.get(name, name)
        if records and not any(key in record for record in records):
            raise missing_column(name, key, dict.fromkeys(chain(*records)), location)


class _BatchBuilder:
    """Collects rows and rejects until a batch is full."""

    def __init__(
        self, renamed: Mapping[str, str], declared: Sequence[pa.Field], extras: Sequence[pa.Field]
    ) -> None:
        # One key may become several columns: an address that is the id too.
        self._fields: dict[str, list[pa.Field]] = {}
        for field in FINEWEB:
            self._fields.setdefault(renamed.get(field.name, field.name), []).append(field)
        for field in declared:
            self._fields.setdefault(field.name, []).append(field)
        self._id_key = renamed.get("id", "id")
        self._schema = pa.schema([*FINEWEB, *extras])
        self._keep_rest = EXTRA_JSON.name in self._schema.names
        self._clear()

    @property
    def num_rows(self) -> int:
        return len(self._records) + len(self._rejects)

    def grew(self, num_bytes: int) -> int:
        """Bytes of lines in this batch, the new ones included."""
        self._bytes += num_bytes
        return self._bytes

    def reject(self, row: int, identifier: str | None, reason: str, detail: str) -> None:
        self._rejects.append(Reject(row, identifier, reason, detail[:200]))

    def add(self, row: int, record: dict[str, Any]) -> None:
        values, rest = {}, {}
        for key, value in record.items():
            if key not in self._fields:
                rest[key] = value
            for field in self._fields.get(key, ()):
                problem = _problem(value, field.type)
                if problem:
                    identifier = record.get(self._id_key)
                    identifier = (
                        identifier
                        if isinstance(identifier, str) and not _problem(identifier, pa.string())
                        else None
                    )
                    self.reject(row, identifier, *problem_of(key, value, field.type, problem))
                    return
                values[field.name] = _as_stated(value, field.type)
        if rest and self._keep_rest:
            values[EXTRA_JSON.name] = _json_text(rest)
        self._records.append(values)
        self._rows.append(row)

    def take(self) -> SourceBatch:
        columns = [
            pa.array([record.get(field.name) for record in self._records], field.type)
            for field in self._schema
        ]
        documents = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        batch = SourceBatch(pa.array(self._rows, pa.int64()), documents, tuple(self._rejects))
        self._clear()
        return batch

    def _clear(self) -> None:
        self._records: list[dict[str, Any]] = []
        self._rows: list[int] = []
        self._rejects: list[Reject] = []
        self._bytes = 0


def _json_text(fields: dict[str, Any]) -> str:
    """The fields as JSON that any reader takes; `ensure_ascii` keeps lone surrogates as escapes, so it is valid UTF-8."""
    try:
        return json.dumps(fields, allow_nan=False)
    except ValueError:
        return json.dumps(json.loads(json.dumps(fields), parse_constant=lambda word: None))


def problem_of(key: str, value: object, wanted: pa.DataType, reason: str) -> tuple[str, str]:
    """Reason and detail of a value that does not fit; of what it says only numbers are told, where one is wanted."""
    if wanted == pa.string() or not isinstance(value, int | float):
        size = f" of length {len(value)}" if isinstance(value, str | list | dict) else ""
        problem = "it holds a lone surrogate" if reason == "undecodable_text" else f"{wanted} is needed"
        return reason, f"field {key}, {_KINDS[type(value)]}{size}: {problem}"
    return reason, f"field {key}, value {value}: {wanted} is needed"


def _problem(value: object, wanted: pa.DataType) -> str | None:
    """Why a JSON value cannot stand in a column, or ``None``."""
    if value is None:
        return None
    if wanted == pa.string():
        if not isinstance(value, str):
            return "wrong_type"
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return "undecodable_text"
        return None
    if wanted == pa.bool_() or isinstance(value, bool) or not isinstance(value, int | float):
        return None if wanted == pa.bool_() and isinstance(value, bool) else "wrong_type"
    if wanted == pa.int64():
        if isinstance(value, float):
            return None if value.is_integer() and abs(value) < WHOLE else "wrong_type"
        return None if -(2**63) <= value < 2**63 else "wrong_type"
    if isinstance(value, int) and abs(value) > WHOLE:
        return "wrong_type"
    return None


def _as_stated(value: Any, wanted: pa.DataType) -> Any:
    """A value that fits a column, as its type has it: 17.0, as some tools write whole numbers beside nulls, is 17."""
    if value is None or wanted not in _NUMBERS:
        return value
    return _NUMBERS[wanted](value)


FORMAT = JsonLines
