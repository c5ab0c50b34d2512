"""Which rows of a release's crawls may share an id or a content with another, found by hashes on disk. Knows no rule.

Memory holds some thousand rows and, of those found, a number each, however many documents there are.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datamask_pipeline.storage import ROW_GROUP_ROWS, Ref, Store
from datamask_pipeline.storage.row_index import rows_of_equal_keys

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

_WINDOW_ROWS: Final = 8 * ROW_GROUP_ROWS
#: Of a content's group, uniform over 32 bits.
PREFIX: Final = "CAST('0x' || group_hash[1:8] AS BIGINT)"


def find_suspects(
    connection: "duckdb.DuckDBPyConnection",
    store: Store,
    documents: Sequence[Ref],
    scratch: "Path",
    num_prefixes: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows that share an id, or the group of their content, with another one, and by rare chance further ones.

    Args:
        connection: A connection with the table `near`: content hashes and the groups that they are in.
        store: The record.
        documents: Documents of each crawl, in the release's order.
        scratch: A folder for what lies between.
        num_prefixes: How many prefixes of groups are wanted.

    Returns:
        Their rows, counted over all documents, ascending; and the smallest distinct prefixes, ascending.
    """
    files = [scratch / f"{name}.unsorted" for name in ("ids", "groups")]
    smallest, first = np.empty(0, np.int64), 0
    with files[0].open("wb") as ids, files[1].open("wb") as groups:
        for ref in documents:
            for batch in store.iter_batches(ref, ["id", "content_hash"], batch_rows=_WINDOW_ROWS):
                connection.register("taken", with_rows(batch, first))
                found = connection.execute(f"""
                    SELECT hash(id) AS id, hash(group_hash) AS group, row, {PREFIX} AS prefix
                    FROM (SELECT id, row, coalesce(near.group_hash, taken.content_hash) AS group_hash
                          FROM taken LEFT JOIN near USING (content_hash))
                """).fetchnumpy()
                for name, stream in (("id", ids), ("group", groups)):
                    stream.write(np.column_stack([found[name], found["row"].astype(np.uint64)]).tobytes())
                smallest = _smallest(smallest, found["prefix"], num_prefixes)
                first += batch.num_rows
    return np.union1d(*map(rows_of_equal_keys, files)), smallest


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
        for batch in store.iter_batches(ref, columns, batch_rows=_WINDOW_ROWS):
            start, stop = np.searchsorted(rows, [first, first + batch.num_rows])
            if start < stop:
                yield with_rows(batch, first).take(pa.array(rows[start:stop] - first))
            first += batch.num_rows


def with_rows(batch: pa.RecordBatch, first: int) -> pa.Table:
    """A batch with its rows' numbers, of which the first is given, as `row`."""
    return pa.Table.from_batches([batch]).append_column(
        "row", pa.array(np.arange(first, first + batch.num_rows))
    )


def _smallest(held: NDArray[np.int64], more: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """The smallest distinct numbers of those held, ascending and so many at most, and of more."""
    if len(held) == number:
        more = more[more < (held[-1] if number else 0)]
    return np.union1d(held, more)[:number] if len(more) else held
