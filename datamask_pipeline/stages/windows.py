"""Windows of a part's rows, the unit of batching and checkpoints; and rows by their numbers. Knows no stage."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from datamask_pipeline.storage import ROW_GROUP_ROWS, Ref, Store

#: Read at a time, where rows are judged by few of their columns.
ROWS: Final = 8 * ROW_GROUP_ROWS


def windows_of(part: pq.ParquetFile, columns: list[str], rows: int) -> Iterator[pa.Table]:
    """The part's rows in windows of exactly ``rows``, the last one shorter, however it is cut into row groups."""
    pending: list[pa.Table] = []
    for batch in part.iter_batches(batch_size=rows, columns=columns):
        pending.append(pa.Table.from_batches([batch]))
        while sum(table.num_rows for table in pending) >= rows:
            joined = pa.concat_tables(pending)
            yield joined.slice(0, rows)
            pending = [joined.slice(rows)]
    if sum(table.num_rows for table in pending):
        yield pa.concat_tables(pending)


def regrouped(tables: Iterable[pa.Table], columns: pa.Schema, rows: int) -> Iterator[pa.Table]:
    """The rows of tables of one schema in tables of exactly ``rows``, the last one shorter."""
    held = columns.empty_table()
    for table in tables:
        held = pa.concat_tables([held, table])
        while held.num_rows >= rows:
            yield held.slice(0, rows).combine_chunks()
            held = held.slice(rows)
    if held.num_rows:
        yield held.combine_chunks()


def rows_at(
    store: Store, documents: Sequence[Ref], columns: Sequence[str], rows: NDArray[np.int64]
) -> Iterator[pa.Table]:
    """Some columns of some rows, with `row`, a batch at a time.

    Args:
        store: The record.
        documents: The artefacts, in order.
        columns: The columns to read.
        rows: The rows, counted over all artefacts, ascending.
    """
    first = 0
    for ref in documents:
        for batch in store.iter_batches(ref, columns, batch_rows=ROWS):
            start, stop = np.searchsorted(rows, [first, first + batch.num_rows])
            if start < stop:
                yield with_rows(batch, first).take(pa.array(rows[start:stop] - first))
            first += batch.num_rows


def with_rows(batch: pa.RecordBatch, first: int) -> pa.Table:
    """A batch with its rows' numbers, of which the first is given, as `row`."""
    return pa.Table.from_batches([batch]).append_column(
        "row", pa.array(np.arange(first, first + batch.num_rows))
    )
