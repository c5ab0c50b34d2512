"""Which rows of a release's crawls may share an id or a content with another, found by hashes on disk. Knows no rule.

Memory holds some thousand rows and, of those found, a number each, however many documents there are.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.stages import windows
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.row_index import rows_of_equal_keys

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

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
            for batch in store.iter_batches(ref, ["id", "content_hash"], batch_rows=windows.ROWS):
                connection.register("taken", windows.with_rows(batch, first))
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


def _smallest(held: NDArray[np.int64], more: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """The smallest distinct numbers of those held, ascending and so many at most, and of more."""
    if len(held) == number:
        more = more[more < (held[-1] if number else 0)]
    return np.union1d(held, more)[:number] if len(more) else held
