"""Which rows repeat the id of an earlier row of the same crawl. Knows parts and ids; no text and no filter."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datamask_pipeline.sources.base import Reject
from datamask_pipeline.storage import ArtefactBuilder
from datamask_pipeline.storage.row_index import ID, rows_of_equals


def repeated_ids(documents: ArtefactBuilder, names: Sequence[str]) -> Iterator[list[Reject]]:
    """The rows of each part that repeat an id, in row order; of several, the first by (part, row) owns it.

    Ids are compared where their hashes are equal: where none repeats, as is usual, no database is opened.

    Args:
        documents: The artefact in the making; every part is published.
        names: Its parts in canonical order.

    Yields:
        One list a part.
    """
    paths = [*map(documents.part_path, names)]
    suspected = rows_of_equals(documents.store, paths, ID, documents.scratch())
    if len(suspected):
        yield from _found(documents, names, documents.scratch(), suspected)
    else:
        yield from ([] for _ in names)


def _found(
    documents: ArtefactBuilder, names: Sequence[str], scratch: Path, suspected: NDArray[np.int64]
) -> Iterator[list[Reject]]:
    """Exact at any number of repeated ids: the database spills to disk."""
    from datamask_pipeline import duck

    store, sizes = documents.store, []
    for name in names:
        with documents.open_part(name) as part:
            sizes.append(part.metadata.num_rows)
    files = duck.files_sql(store, [*map(documents.part_path, names)], sizes, "id, row")
    with duck.connect(store, scratch, memory_limit=duck.STAGE_MEMORY) as connection:
        connection.register("suspected", pa.table({"artefact_row": suspected}))
        connection.execute(f"CREATE TEMP TABLE duplicates AS {_sql(files)}")
        for order in range(len(names)):
            rows = connection.execute(
                "SELECT row, id, first_order, first_row FROM duplicates WHERE part_order = ? ORDER BY row",
                [order],
            ).fetchall()
            yield [
                Reject(row, name, "duplicate_id", f"first in shard {names[first]}, row {first_row}")
                for row, name, first, first_row in rows
            ]


def _sql(files: str) -> str:
    return f"""
        WITH documents AS (FROM {files} SEMI JOIN suspected USING (artefact_row)),
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
