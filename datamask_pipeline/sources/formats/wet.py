"""Reads one WET file of Common Crawl, the plain text of pages, as batches in FineWeb's schema. Knows no file system.

A row is a ``conversion`` record. Its id, URL, date and language are the record's own; the language is Common
Crawl's guess, in three letters, the first of several. A record that is too large, or whose bytes do not fit its
headers, becomes a ``Reject``; a file whose compression is damaged, or that ends early, is refused as a whole.
"""

import io
import re
import zlib
from collections.abc import Generator, Iterator, Sequence
from pathlib import PurePosixPath
from typing import IO, Any, Final

import numpy as np
import pyarrow as pa

from datamask_pipeline.arrays import int64_array
from datamask_pipeline.errors import InputError
from datamask_pipeline.schema import FINEWEB
from datamask_pipeline.sources.base import Reject, SourceBatch
from datamask_pipeline.sources.filters import word_or_length
from datamask_pipeline.sources.formats.base import Columns, FileFormat, ShardFile
from datamask_pipeline.sources.formats.lines import CHUNK_BYTES

#: ``zlib``'s window size for gzip.
GZIP: Final = 31

#: Records that a WET file may hold beside ``conversion``; they are no documents.
OTHER_TYPES: Final = (
    "warcinfo",
    "response",
    "resource",
    "request",
    "metadata",
    "revisit",
    "continuation",
)

#: A larger record is rejected unread, so that a small file of zeros cannot exhaust memory.
MOST_RECORD_BYTES: Final = 64 << 20

#: Where a record's headers must have ended: reading them takes time with the square of their length.
MOST_HEADER_BYTES: Final = 1 << 18

#: Digits of the greatest length there can be.
MOST_DIGITS: Final = 18

#: A gzip member is decompressed in parts of at most so many bytes.
PART_BYTES: Final = 1 << 20

_HEADERS_END: Final = re.compile(rb"\n\r?\n")

#: A batch is handed on at this many bytes of text, whatever ``batch_rows`` says.
BATCH_BYTES: Final = 32 << 20


class Wet(FileFormat):
    """Common Crawl's extracted text."""

    name = "wet"
    suffixes = (".warc.wet.gz",)

    def extra_fields(self, file: ShardFile, columns: Columns) -> list[pa.Field]:
        return []

    def read(
        self, file: ShardFile, columns: Columns, *, crawl: str, extras: Sequence[pa.Field], batch_rows: int
    ) -> Generator[SourceBatch]:
        del columns  # a record's headers have their own names
        with file.open() as stream:
            yield from read_wet(stream, file.location, crawl, extras=extras, batch_rows=batch_rows)


def read_wet(
    stream: IO[bytes], location: str, crawl: str, *, extras: Sequence[pa.Field], batch_rows: int
) -> Iterator[SourceBatch]:
    """The file's documents in order.

    Args:
        stream: The compressed bytes.
        location: The file, for messages; becomes ``file_path``.
        crawl: Becomes ``dump``.
        extras: Every extra column of the crawl; null here.
        batch_rows: Rows a batch holds at most.

    Raises:
        InputError: the file is no WET file, is damaged or ends early, or holds no document.
    """
    schema = pa.schema([*FINEWEB, *extras])
    documents: list[dict[str, Any]] = []
    rows: list[int] = []
    rejects: list[Reject] = []
    row, num_bytes = -1, 0

    def taken() -> SourceBatch:
        batch = pa.RecordBatch.from_pylist(documents, schema=schema)
        return SourceBatch(int64_array(np.array(rows, np.int64)), batch, tuple(rejects))

    for row, (headers, payload, problem) in enumerate(_conversions(stream, location)):
        if problem is not None:
            name = headers.get_header("WARC-Record-ID") if headers else None
            reason, detail = problem
            rejects.append(Reject(row, name, reason, detail[:200]))
        else:
            documents.append(_document(headers, payload, location, crawl))
            rows.append(row)
        num_bytes += len(payload)
        if len(documents) + len(rejects) >= batch_rows or num_bytes >= BATCH_BYTES:
            yield taken()
            documents, rows, rejects, num_bytes = [], [], [], 0
    if row < 0:
        raise InputError(
            "an empty shard: the file holds no conversion record",
            file=location,
            value=0,
            remedy="fetch it again, if it was cut short; else remove it",
        )
    if documents or rejects:
        yield taken()


def _conversions(stream: IO[bytes], location: str) -> Iterator[tuple[Any, bytes, tuple[str, str] | None]]:
    """Every conversion record, and whatever stands where a record should.

    Yields:
        Headers, ``None`` where no WARC record of a known type can be read; the bytes found; reason and detail of
        what is wrong.
    """
    from warcio.exceptions import ArchiveLoadFailed

    remedy = "fetch the file again"
    try:
        for number, member in enumerate(_members(stream)):
            try:
                if (problem := _unreadable(member)) is None:
                    yield from _conversions_of(member)
                elif number == 0:
                    raise ArchiveLoadFailed(problem[1])
                else:
                    yield None, b"", problem
            except (ArchiveLoadFailed, UnicodeError) as error:
                if number == 0:
                    raise InputError(f"no WET file: {error}", file=location, remedy=remedy) from error
                yield None, member, _problem(None, member, True)
    except (EOFError, zlib.error) as error:
        raise InputError(f"the compressed stream is broken: {error}", file=location, remedy=remedy) from error


def _conversions_of(member: bytes) -> Iterator[tuple[Any, bytes, tuple[str, str] | None]]:
    """Those of one gzip member."""
    from warcio.archiveiterator import ArchiveIterator
    from warcio.exceptions import ArchiveLoadFailed

    records = ArchiveIterator(io.BytesIO(member), no_record_parse=True)
    num_records = 0
    for record in records:
        num_records += 1
        payload = record.content_stream().read()
        num_errors = records.err_count
        records.read_to_end()
        is_whole = records.err_count == num_errors and _promised(record.rec_headers) == len(payload)
        if record.rec_type == "conversion" or not is_whole:
            yield record.rec_headers, payload, _problem(record.rec_headers, payload, is_whole)
        elif record.rec_type not in OTHER_TYPES:
            yield None, member, _problem(None, member, True)
    if member and num_records == 0:
        raise ArchiveLoadFailed("no WARC record")


def _members(stream: IO[bytes]) -> Iterator[bytes]:
    """Every gzip member, checked; in a WET file each holds one record. ``warcio`` passes over damage in silence.

    Yields:
        Its bytes; of a member larger than ``MOST_RECORD_BYTES``, somewhat more than so many.
    """
    member = zlib.decompressobj(GZIP)
    parts: list[bytes] = []
    num_bytes, begun = 0, False
    while chunk := stream.read(CHUNK_BYTES):
        part = b""
        # What is left of the chunk, or of what the last part held back.
        while chunk or len(part) == PART_BYTES:
            begun = True
            part = member.decompress(chunk, PART_BYTES)
            if num_bytes <= MOST_RECORD_BYTES:
                parts.append(part)
                num_bytes += len(part)
            chunk = member.unused_data if member.eof else member.unconsumed_tail
            if member.eof:
                yield b"".join(parts)
                member, parts, part = zlib.decompressobj(GZIP), [], b""
                num_bytes, begun = 0, False
    if begun:
        raise EOFError("the last record ends early")


def _unreadable(member: bytes) -> tuple[str, str] | None:
    """Reason and detail of a member that is not even parsed."""
    if len(member) > MOST_RECORD_BYTES:
        return "too_large", f"a gzip member, which is one record, has more than {MOST_RECORD_BYTES} bytes"
    if len(member) > MOST_HEADER_BYTES and not _HEADERS_END.search(member, 0, MOST_HEADER_BYTES):
        return "malformed_record", f"the headers have more than {MOST_HEADER_BYTES} bytes"
    return None


def _problem(headers: Any, payload: bytes, is_whole: bool) -> tuple[str, str] | None:
    if headers is None:
        return "malformed_record", f"{len(payload)} bytes that no WARC record begins with"
    if not is_whole:
        promised = headers.get_header("Content-Length") or ""
        follow = f"{len(payload)} bytes follow" if _promised(headers) != len(payload) else "more bytes follow"
        return "malformed_record", f"field Content-Length, value {word_or_length(promised)}: {follow}"
    try:
        payload.decode("utf-8")
    except UnicodeDecodeError as error:
        return "undecodable_text", f"field text, byte {error.start} is not UTF-8"
    return None


def _promised(headers: Any) -> int | None:
    """Bytes the record should have; ``None`` where its headers do not say."""
    length = headers.get_header("Content-Length") or ""
    return int(length) if length.isascii() and length.isdecimal() and len(length) <= MOST_DIGITS else None


def _document(headers: Any, payload: bytes, location: str, crawl: str) -> dict[str, Any]:
    languages = headers.get_header("WARC-Identified-Content-Language")
    return {
        "text": payload.decode("utf-8"),
        "id": headers.get_header("WARC-Record-ID"),
        "dump": crawl,
        "url": headers.get_header("WARC-Target-URI"),
        "date": headers.get_header("WARC-Date"),
        "file_path": PurePosixPath(location).name,
        "language": languages.split(",")[0] if languages else None,
    }


FORMAT = Wet
