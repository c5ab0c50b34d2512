"""Reads one Parquet file as batches in FineWeb's schema. Knows no file system: it is given an open file."""

import contextlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datamask_pipeline.arrays import int64_array
from datamask_pipeline.errors import InputError
from datamask_pipeline.sources.base import Reject, SourceBatch
from datamask_pipeline.sources.columns import check_columns, conform, extra_fields, whole_numbers
from datamask_pipeline.sources.formats.base import Columns, FileFormat, ShardFile

#: Bytes of a column chunk held while it is decoded, so that memory does not follow the row group's size.
READ_BUFFER_BYTES = 1 << 20

REMEDY = "fetch or write the file again"


class Parquet(FileFormat):
    """Columns with types."""

    name = "parquet"
    suffixes = (".parquet",)

    def extra_fields(self, file: ShardFile, columns: Columns) -> list[pa.Field]:
        with _opened(file) as opened:
            if opened.metadata.num_rows == 0:
                return []
            return extra_fields(opened.schema_arrow, renamed=columns.renamed)

    def num_rows(self, file: ShardFile) -> int | None:
        with _opened(file) as opened:
            return int(opened.metadata.num_rows)

    def read(
        self, file: ShardFile, columns: Columns, *, crawl: str, extras: Sequence[pa.Field], batch_rows: int
    ) -> Generator[SourceBatch]:
        del crawl
        with _opened(file) as opened:
            yield from read_parquet(
                opened,
                file.location,
                renamed=columns.renamed,
                optional=columns.optional,
                extras=extras,
                batch_rows=batch_rows,
            )


@contextlib.contextmanager
def _opened(file: ShardFile) -> Iterator[pq.ParquetFile]:
    """The file's reader; a local file is left to Arrow, whose own reading costs less than a Python stream's."""
    with file.open() as stream, open_parquet(file.local_path or stream, file.location) as opened:
        yield opened


def open_parquet(stream: IO[bytes] | str, location: str) -> pq.ParquetFile:
    """The file's reader.

    Raises:
        InputError: the file is no Parquet file or is truncated.
    """
    try:
        # pre_buffer would hold whole row groups.
        opened = pq.ParquetFile(
            stream, buffer_size=READ_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"not a whole Parquet file: {_first_line(error)}", file=location, remedy=REMEDY
        ) from error
    return opened


def read_parquet(
    opened: pq.ParquetFile,
    location: str,
    *,
    renamed: Mapping[str, str],
    optional: Sequence[str],
    extras: Sequence[pa.Field],
    batch_rows: int,
) -> Iterator[SourceBatch]:
    """The file's rows in order; of a file without rows, whatever its columns, there are none.

    Raises:
        InputError: a column is missing or of another type, or a page cannot be decoded; the message names
            the row the readable part ends at.
    """
    if opened.metadata.num_rows == 0:
        return
    found = opened.schema_arrow
    check_columns(found, location=location, renamed=renamed, optional=optional)
    known = {field.name: field.type for field in extras}
    for field in extra_fields(found, renamed=renamed):
        if known.get(field.name) != field.type and not (field.name in known and pa.types.is_null(field.type)):
            raise InputError(
                f"an extra column of type {field.type}; the crawl's first file has {known.get(field.name, 'none')}",
                file=location,
                field=field.name,
                remedy="ingest files of another layout as a crawl of their own",
            )
    first = 0
    # One thread: what one frees is then at hand for the next batch.
    batches = opened.iter_batches(batch_size=batch_rows, use_threads=False)
    while True:
        try:
            batch = next(batches, None)
            if batch is None:
                break
            batch, wrong = whole_numbers(batch, renamed=renamed)
            documents = conform(batch, renamed=renamed, extras=extras)
        except pa.ArrowNotImplementedError as error:
            inside = [field.name for field in found if _holds_dictionary(field.type)]
            raise InputError(
                f"Arrow cannot read a column of this type in batches: {_first_line(error)}",
                file=location,
                row=first,
                field=", ".join(inside) or None,
                remedy="write lists and structs without dictionaries (categories) in them, or drop the column",
            ) from error
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError(
                f"a page cannot be decoded: {_first_line(error)}", file=location, row=first, remedy=REMEDY
            ) from error
        rows = int64_array(np.arange(first, first + batch.num_rows))
        rejects = tuple(
            Reject(first + row, _readable(documents.column("id")[row]), "wrong_type", detail)
            for row, detail in sorted(wrong.items())
        )
        if rejects:
            fits = pa.array(~np.isin(np.arange(batch.num_rows), list(wrong)))
            rows, documents = rows.filter(fits), documents.filter(fits)
        yield SourceBatch(rows, documents, rejects)
        first += batch.num_rows
    if first != opened.metadata.num_rows:
        raise InputError(
            f"the footer promises {opened.metadata.num_rows} rows", file=location, value=first, remedy=REMEDY
        )


def _holds_dictionary(kind: pa.DataType) -> bool:
    """Whether values inside a list or struct are dictionary-encoded."""
    inside = [kind.field(place).type for place in range(kind.num_fields)]
    return any(pa.types.is_dictionary(one) or _holds_dictionary(one) for one in inside)


def _readable(identifier: pa.StringScalar) -> str | None:
    """The id, where its bytes are text."""
    try:
        found: str | None = identifier.as_py()
    except UnicodeDecodeError:
        return None
    return found


def _first_line(error: Any) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


FORMAT = Parquet
