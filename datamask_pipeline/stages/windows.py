"""Windows of a part's rows, the unit of batching and checkpoints. Knows no stage."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq


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
