"""Reads the rows of somebody else's subset: ids, content hashes, licences. Knows files and columns; knows no record.

Parquet and JSON Lines are read with the readers that crawls are read with, a batch at a time, and only the columns that
are asked for. A row that cannot be read is a row all the same.
"""

import codecs
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from datamask_pipeline.errors import InputError, suggestion
from datamask_pipeline.hub import HubRepository
from datamask_pipeline.sources.content import content_hashes
from datamask_pipeline.sources.formats.jsonl import JsonLines, parse_line
from datamask_pipeline.sources.formats.lines import MOST_LINE_BYTES, raw_lines
from datamask_pipeline.sources.formats.parquet import Parquet, open_parquet
from datamask_pipeline.storage import storage_errors
from datamask_pipeline.yaml_text import parse_yaml

CARD: Final = "README.md"
#: What published subsets call these columns; the first that a file has is taken. FineWeb and FineWeb-Edu have `id` and
#: `text`; Ultra-FineWeb has `content` and no id.
USUAL: Final = {"id": ("id",), "text": ("text", "content"), "licence": ("license", "licence")}
#: A batch ends at so many rows, or at so many bytes of lines.
BATCH_ROWS: Final = 1_024
BATCH_BYTES: Final = 32 << 20
_SUFFIXES: Final = (*Parquet.suffixes, *JsonLines.suffixes)
_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")

#: One row of the subset, without its text.
ROWS: Final = pa.schema(
    [
        ("row", pa.int64()),
        ("file", pa.int32()),
        ("file_row", pa.int64()),
        ("id", pa.string()),
        ("content_hash", pa.string()),
        ("licence", pa.string()),
        ("readable", pa.bool_()),
    ]
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Files:
    """Where the rows lie.

    Attributes:
        paths: The data files in the order of their names.
        names: What messages call each.
        card: What the data card says in its YAML, or why that cannot be read; empty where there is no card.
        card_text: The rest of it.
        revision: Commit of the hub's data set; none of files on disk.
    """

    paths: list[Path]
    names: list[str]
    card: dict[str, Any]
    card_text: str
    revision: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """Some rows of one file, one after the other.

    Attributes:
        file: Which file.
        first: Row of the first of them in it.
        ids: Each row's id, where it has one.
        texts: Its text as UTF-8, where it has one.
        licences: Its licence, where it says one.
        readable: Whether it could be read; of one that could not, nothing is taken.
    """

    file: int
    first: int
    ids: list[str | None]
    texts: list[bytes | None]
    licences: list[str | None]
    readable: list[bool]


def find_files(target: str, revision: str | None, endpoint: str | None = None) -> Files:
    """The data files of a path, or of a data set of the hub, which is downloaded whole.

    Args:
        target: A file, a folder, or ``owner/name`` on the hub.
        revision: Commit of the hub's data set.
        endpoint: Another server that speaks the hub's protocol.

    Raises:
        InputError: there is nothing to read, or no revision is given for a data set of the hub.
        ConfigurationError: the revision is no commit.
        StorageError: the hub does not deliver.
    """
    path = Path(target)
    if path.is_file():
        if not path.name.lower().endswith(_SUFFIXES):
            raise _nothing_to_read("is no file of a kind that is read", target)
        return Files(paths=[path], names=[path.name], card={}, card_text="")
    if path.is_dir():
        found = sorted(
            each for each in path.rglob("*") if _is_data(each.relative_to(path)) and each.is_file()
        )
        _require_files(found, target)
        card = path / CARD
        stated = _card(card.read_text(encoding="utf-8", errors="replace")) if card.is_file() else ({}, "")
        names = [each.relative_to(path).as_posix() for each in found]
        return Files(paths=found, names=names, card=stated[0], card_text=stated[1])
    if not _HUB_ID.fullmatch(target):
        raise InputError(
            "no such file or folder", file=target, remedy="give a path, or `owner/name` of a data set"
        )
    if revision is None:
        raise InputError(
            "a data set of the hub is read at a pinned commit",
            file=target,
            remedy="give --revision, or a path that exists if no data set was meant",
        )
    repository = HubRepository(target, revision, kind="dataset", endpoint=endpoint)
    listed = repository.list_files()
    data = [file for file in listed if _is_data(Path(file.path))]
    _require_files(data, target)
    text = next((repository.download(file) for file in listed if file.path == CARD), None)
    stated = _card(text.read_text(encoding="utf-8", errors="replace")) if text else ({}, "")
    return Files(
        paths=[repository.download(file) for file in data],
        names=[file.path for file in data],
        card=stated[0],
        card_text=stated[1],
        revision=revision,
    )


def read_batches(files: Files, columns: dict[str, str | None]) -> Iterator[Batch]:
    """Every row, file by file.

    Args:
        files: Where they lie.
        columns: What the files call ``id``, ``text`` and ``licence``; `USUAL` names where none is said.

    Raises:
        InputError: a file cannot be read, lacks a column that is named, or has one of another type.
    """
    for number, (path, name) in enumerate(zip(files.paths, files.names, strict=True)):
        if name.lower().endswith(Parquet.suffixes):
            yield from _parquet(number, path, name, columns)
        else:
            yield from _json_lines(number, path, name, columns)


def write_rows(batches: Iterable[Batch], target: Path, progress: Callable[[int], None]) -> int:
    """Write what `ROWS` says of each row; returns how many there are.

    Raises:
        InputError: as `read_batches`.
        StorageError: there is no room left.
    """
    row = 0
    with storage_errors(str(target)), pq.ParquetWriter(target, ROWS) as writer:
        for batch in batches:
            texts = pa.array([text or b"" for text in batch.texts], pa.binary()).cast(pa.string())
            hashes = content_hashes(texts).to_pylist()
            size = len(batch.ids)
            values = {
                "row": range(row, row + size),
                "file": [batch.file] * size,
                "file_row": range(batch.first, batch.first + size),
                "id": batch.ids,
                "content_hash": [
                    found if text is not None else None
                    for found, text in zip(hashes, batch.texts, strict=True)
                ],
                "licence": batch.licences,
                "readable": batch.readable,
            }
            writer.write_table(pa.table(values, schema=ROWS))
            row += size
            progress(row)
    return row


def _is_data(relative: Path) -> bool:
    hidden = any(part.startswith(".") for part in relative.parts)
    return not hidden and relative.name.lower().endswith(_SUFFIXES)


def _require_files(found: Sequence[Any], target: str) -> None:
    if not found:
        raise _nothing_to_read("holds no file to read", target)


def _nothing_to_read(why: str, target: str) -> InputError:
    return InputError(why, file=target, remedy=f"files must end in {', '.join(_SUFFIXES)}")


def _card(text: str) -> tuple[dict[str, Any], str]:
    """The YAML between the first two lines of three hyphens, and the rest."""
    match = re.match(r"\s*---\s*\n(.*?)\n---\s*(?:\n|$)(.*)", text, re.DOTALL)
    if match is None:
        return {}, text
    try:
        stated = parse_yaml(match[1])
    except yaml.YAMLError as error:
        return {"unreadable": str(error).partition("\n")[0]}, match[2]
    return (stated if isinstance(stated, dict) else {}), match[2]


def _chosen(columns: dict[str, str | None], have: Sequence[str], name: str, file: str) -> str | None:
    """What a file calls one of our columns; none where it has no such."""
    given = columns.get(name)
    if given is None:
        return next((usual for usual in USUAL[name] if usual in have), None)
    if given not in have:
        raise InputError(
            f"no column {given!r}{suggestion(given, have)}; there are: {', '.join(have) or 'none'}",
            file=file,
            remedy=f"correct the option that names the column of {name}",
        )
    return given


def _parquet(number: int, path: Path, name: str, columns: dict[str, str | None]) -> Iterator[Batch]:
    with open_parquet(str(path), name) as opened:
        have = opened.schema_arrow.names
        wanted = {
            ours: theirs for ours in USUAL if (theirs := _chosen(columns, have, ours, name)) is not None
        }
        for ours, theirs in wanted.items():
            kind = opened.schema_arrow.field(theirs).type
            if not (_is_text(kind) or (ours != "text" and pa.types.is_primitive(kind))):
                raise InputError(f"a column has type {kind} where text is needed", file=name, field=theirs)
        first = 0
        try:
            names = list(dict.fromkeys(wanted.values()))
            for batch in opened.iter_batches(BATCH_ROWS, columns=names, use_threads=False):
                yield _of_columns(number, first, batch, wanted)
                first += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            problem = f"a page cannot be decoded: {str(error).partition(chr(10))[0]}"
            raise InputError(problem, file=name, row=first, remedy="fetch the file again") from error


def _of_columns(number: int, first: int, batch: pa.RecordBatch, wanted: dict[str, str]) -> Batch:
    size = batch.num_rows
    found: dict[str, list[Any]] = {
        ours: _as_bytes(batch.column(wanted[ours])) if ours in wanted else [None] * size for ours in USUAL
    }
    decoded = {ours: [_decoded(value) for value in values] for ours, values in found.items()}
    readable = [all(of[place] is not False for of in decoded.values()) for place in range(size)]
    return Batch(
        file=number,
        first=first,
        ids=[value or None if whole else None for value, whole in zip(decoded["id"], readable, strict=True)],
        texts=[raw if whole else None for raw, whole in zip(found["text"], readable, strict=True)],
        licences=[
            value or None if whole else None
            for value, whole in zip(decoded["licence"], readable, strict=True)
        ],
        readable=readable,
    )


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_null(kind)
    )


def _as_bytes(column: pa.Array) -> list[bytes | None]:
    values: list[bytes | None] = column.cast(pa.string()).cast(pa.binary()).to_pylist()
    return values


def _decoded(value: bytes | None) -> Any:
    """The text; ``False`` where the bytes are no UTF-8."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return False


def _json_lines(number: int, path: Path, name: str, columns: dict[str, str | None]) -> Iterator[Batch]:
    pending: list[tuple[str | None, bytes | None, str | None, bool]] = []
    first = size = 0
    for number_of_line, line in enumerate(_lines(path, name)):
        if number_of_line == 0:
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line.strip():
            continue
        pending.append(_of_line(line, columns, name, is_first=first + len(pending) == 0))
        size += len(line)
        if len(pending) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield _of_records(number, first, pending)
            first, size, pending = first + len(pending), 0, []
    if pending:
        yield _of_records(number, first, pending)


def _lines(path: Path, name: str) -> Iterator[bytes]:
    try:
        with path.open("rb") as stream:
            yield from raw_lines(stream, name)
    except OSError as error:
        raise InputError(f"cannot be read: {error}", file=name, remedy="check who may read it") from error


def _of_records(
    number: int, first: int, rows: list[tuple[str | None, bytes | None, str | None, bool]]
) -> Batch:
    ids, texts, licences, readable = map(list, zip(*rows, strict=True))
    return Batch(file=number, first=first, ids=ids, texts=texts, licences=licences, readable=readable)


def _of_line(
    line: bytes, columns: dict[str, str | None], name: str, *, is_first: bool
) -> tuple[str | None, bytes | None, str | None, bool]:
    record = parse_line(line) if len(line) <= MOST_LINE_BYTES else "too long"
    if isinstance(record, str):
        return None, None, None, False
    if is_first:
        for ours in USUAL:
            _chosen(columns, list(record), ours, name)
    found = {}
    for ours, usual in USUAL.items():
        keys = [given] if (given := columns.get(ours)) else usual
        found[ours] = next((record[key] for key in keys if record.get(key) is not None), None)
    try:
        text = found["text"]  # a number may be an id; it is no text
        if not (text is None or isinstance(text, str)):
            return None, None, None, False
        raw = None if text is None else text.encode()
        given, licence = (_as_text(found[ours]) or None for ours in ("id", "licence"))
        for said in filter(None, (given, licence)):
            said.encode()  # half of a pair of code units is JSON, and no text
        return given, raw, licence, True
    except (TypeError, UnicodeEncodeError):
        return None, None, None, False


def _as_text(value: Any) -> str | None:
    """A string, or a whole number as one.

    Raises:
        TypeError: it is something else.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise TypeError(type(value).__name__)
