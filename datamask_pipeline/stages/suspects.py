"""Which rows of a release's crawls may share an id or a content with another, found by hashes on disk. Knows no rule.

Memory holds some thousand rows and, of those found, a number each, however many documents there are.
"""

import itertools
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


#: A hash is known by so many more of its first bits than it takes to number the rows: most that no row has are told.
_SPARE_BITS: Final = 2


def find_suspects(
    connection: "duckdb.DuckDBPyConnection",
    store: Store,
    documents: Sequence[Ref],
    scratch: "Path",
    num_prefixes: int,
    num_judged: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows that share an id, or the group of their content, with another one, and by rare chance further ones.

    Args:
        connection: A connection with the table `near`: content hashes and the groups that they are in.
        store: The record.
        documents: Documents of each crawl, in the release's order.
        scratch: A folder for what lies between.
        num_prefixes: How many prefixes of groups are wanted.
        num_judged: Of the crawls, so many first ones were judged before: of their rows, those that share something with a
            later crawl's are enough.

    Returns:
        Their rows, counted over all documents, ascending; and the smallest distinct prefixes, ascending.
    """
    files = [scratch / f"{name}.unsorted" for name in ("ids", "groups")]
    smallest = np.empty(0, np.int64)
    firsts = itertools.accumulate((ref.rows for ref in documents), initial=0)
    crawls = list(zip(documents, firsts, strict=False))
    added_bits = sum(ref.rows for ref in documents[num_judged:]).bit_length() + _SPARE_BITS
    added = [np.zeros(1 << added_bits, bool) for _ in files] if num_judged else []
    with files[0].open("wb") as ids, files[1].open("wb") as groups:
        # What was judged comes last: then it is known what the others have.
        for number, (ref, first) in enumerate(crawls[num_judged:] + crawls[:num_judged]):
            is_judged = number >= len(crawls) - num_judged
            for batch in store.iter_batches(ref, ["id", "content_hash"], batch_rows=windows.ROWS):
                connection.register("taken", windows.with_rows(batch, first))
                found = connection.execute(f"""
                    SELECT hash(id) AS id, hash(group_hash) AS group, row, {PREFIX} AS prefix
                    FROM (SELECT id, row, coalesce(near.group_hash, taken.content_hash) AS group_hash
                          FROM taken LEFT JOIN near USING (content_hash))
                """).fetchnumpy()
                for place, (name, stream) in enumerate((("id", ids), ("group", groups))):
                    pairs_n2 = np.column_stack([found[name], found["row"].astype(np.uint64)])
                    beginnings_n = found[name] >> np.uint64(64 - added_bits)
                    if is_judged:
                        pairs_n2 = pairs_n2[added[place][beginnings_n]]
                    elif added:
                        added[place][beginnings_n] = True
                    stream.write(pairs_n2.tobytes())
                smallest = _smallest(smallest, found["prefix"], num_prefixes)
                first += batch.num_rows
    return np.union1d(*map(rows_of_equal_keys, files)), smallest


def _smallest(held: NDArray[np.int64], more: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """The smallest distinct numbers of those held, ascending and so many at most, and of more."""
    if len(held) == number:
        more = more[more < (held[-1] if number else 0)]
    return np.union1d(held, more)[:number] if len(more) else held
