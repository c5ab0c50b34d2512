"""Which rows repeat the id of an earlier row of the same crawl. Knows parts and ids; no text and no filter."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from datamask_pipeline.sources.base import Reject
from datamask_pipeline.storage import ROW_GROUP_ROWS, ArtefactBuilder

#: Up to so many rows the ids' hashes are first held in memory, 8 MB of them; where none repeats, as is usual, no
#: database is opened.
COUNTED_ROWS: Final = 1_000_000


def repeated_ids(documents: ArtefactBuilder, names: Sequence[str], num_rows: int) -> Iterator[list[Reject]]:
    """The rows of each part that repeat an id, in row order; of several, the first by (part, row) owns it.

    Args:
        documents: The artefact in the making; every part is published.
        names: Its parts in canonical order.
        num_rows: Rows of all parts.

    Yields:
        One list a part.
    """
    if num_rows <= COUNTED_ROWS and _are_distinct(documents, names, num_rows):
        yield from ([] for _ in names)
    else:
        yield from _found(documents, names, documents.scratch())


def _are_distinct(documents: ArtefactBuilder, names: Sequence[str], num_rows: int) -> bool:
    """Whether surely no id repeats: equal ids have equal hashes; ``False`` where two ids share one by chance, too."""
    hashes = np.empty(num_rows, np.int64)
    filled = 0
    for name in names:
        with documents.open_part(name) as opened:
            for batch in opened.iter_batches(batch_size=ROW_GROUP_ROWS, columns=["id"]):
                ids = batch.column(0).to_pylist()
                hashes[filled : filled + len(ids)] = np.fromiter(map(hash, ids), np.int64, len(ids))
                filled += len(ids)
    hashes.sort()
    return not (hashes[1:] == hashes[:-1]).any()


def _found(documents: ArtefactBuilder, names: Sequence[str], scratch: Path) -> Iterator[list[Reject]]:
    """Exact at any size: the database spills to disk."""
    from datamask_pipeline import duck

    store = documents.store
    selects = []
    for order, path in enumerate(map(documents.part_path, names)):
        file = duck.file_literal(store, path)
        selects.append(f"SELECT id, row, {order} AS part_order FROM read_parquet({file})")
    with duck.connect(documents.store, scratch) as connection:
        connection.execute(f"CREATE TEMP TABLE duplicates AS {_sql(selects)}")
        for order in range(len(names)):
            rows = connection.execute(
                "SELECT row, id, first_order, first_row FROM duplicates WHERE part_order = ? ORDER BY row",
                [order],
            ).fetchall()
            yield [
                Reject(row, name, "duplicate_id", f"first in shard {names[first]}, row {first_row}")
                for row, name, first, first_row in rows
            ]


def _sql(selects: Sequence[str]) -> str:
    return f"""
        WITH documents AS ({" UNION ALL ".join(selects)}),
        repeated AS (SELECT id FROM documents GROUP BY id HAVING count(*) > 1),
        ranked AS (
            SELECT documents.*,
                row_number() OVER copies AS copy,
                first_value(part_order) OVER copies AS first_order,
                first_value(row) OVER copies AS first_row
            FROM documents JOIN repeated USING (id)
            WINDOW copies AS (PARTITION BY id ORDER BY part_order, row)
        )
        SELECT part_order, row, id, first_order, first_row FROM ranked WHERE copy > 1
    """
