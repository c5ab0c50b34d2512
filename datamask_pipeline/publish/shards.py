"""Rows into Parquet files of bounded size. Knows no record and no meaning of a column."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from datamask_pipeline.ahead import drawn_ahead
from datamask_pipeline.storage import storage_errors

#: Columns whose values hardly repeat: a dictionary and bounds of them would be written for nothing.
PLAIN = ("text", "id", "url", "content_hash")


@dataclasses.dataclass(frozen=True)
class Written:
    """Shards that were written.

    Attributes:
        rows: Rows of each file, by its path in the data set, in order.
        num_bytes: Bytes of all rows, before compression.
    """

    rows: dict[str, int]
    num_bytes: int


def write_shards(
    batches: Iterator[pa.RecordBatch],
    columns: pa.Schema,
    folder: Path,
    *,
    max_documents: int | None,
    max_bytes: int,
) -> Written:
    """Write ``data/train-<number>-of-<count>.parquet`` one after the other.

    Args:
        batches: The rows.
        columns: Their columns, with descriptions.
        folder: The data set's folder.
        max_documents: Most rows of a file.
        max_bytes: Most bytes of a file's rows, before compression; a larger row stands alone.

    Raises:
        StorageError: the disk is full or the file system refuses.
    """
    (folder / "data").mkdir()
    written: list[tuple[Path, int]] = []
    num_bytes = 0
    for number, pieces in enumerate(_cut(drawn_ahead(batches), max_documents, max_bytes)):
        path = folder / "data" / f"{number}.parquet"
        rows = 0
        plain = [name for name in columns.names if name not in PLAIN]
        with (
            storage_errors(str(path)),
            pq.ParquetWriter(
                path, columns, compression="zstd", version="2.6", use_dictionary=plain, write_statistics=plain
            ) as writer,
        ):
            for piece in pieces:
                writer.write_batch(piece.cast(columns))
                rows += piece.num_rows
                num_bytes += piece.nbytes
        written.append((path, rows))
    names = {}
    for number, (path, rows) in enumerate(written):
        name = f"data/train-{number:05d}-of-{len(written):05d}.parquet"
        path.rename(folder / name)
        names[name] = rows
    return Written(names, num_bytes)


def _cut(
    batches: Iterator[pa.RecordBatch], max_documents: int | None, max_bytes: int
) -> Iterator[Iterator[pa.RecordBatch]]:
    """The rows of each file; a file's must be drawn before the next file's."""
    waiting: list[pa.RecordBatch] = []

    def following() -> pa.RecordBatch | None:
        while not waiting:
            batch = next(batches, None)
            if batch is None:
                return None
            if batch.num_rows:
                waiting.append(batch)
        return waiting.pop()

    def one_file() -> Iterator[pa.RecordBatch]:
        documents = size = 0
        while (batch := following()) is not None:
            room = batch.num_rows if max_documents is None else max_documents - documents
            count = _fitting(batch, min(room, batch.num_rows), max_bytes - size)
            if not documents:
                count = max(count, 1)
            if count < batch.num_rows:
                waiting.append(batch.slice(count))
            if count:
                piece = batch.slice(0, count)
                yield piece
                documents, size = documents + count, size + piece.nbytes
            if count < batch.num_rows:
                return

    while (first := following()) is not None:
        waiting.append(first)
        yield one_file()


def _fitting(batch: pa.RecordBatch, most: int, num_bytes: int) -> int:
    """How many of the first rows take no more than so many bytes."""
    if batch.slice(0, most).nbytes <= num_bytes:
        return most
    low, high = 0, most  # the first `low` rows fit, the first `high` do not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if batch.slice(0, middle).nbytes <= num_bytes else (low, middle)
    return low
