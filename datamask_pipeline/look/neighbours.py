"""Which chosen documents of a release one is compared with: all, or a sample that is stated. Knows no page.

Shape suffixes: D dimensions, m rows of a chunk.
"""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from datamask_pipeline import duck
from datamask_pipeline.audit.neighbours import NUM_NEIGHBOURS, Chunk, nearest
from datamask_pipeline.look.rows import Rows
from datamask_pipeline.look.selected import Selected
from datamask_pipeline.storage import open_array

if TYPE_CHECKING:
    import duckdb

#: Chosen documents that one is compared with at most; of more, a sample that stays the same.
MOST_COMPARED: Final = 200_000
_CHUNK: Final = 4_096


@dataclasses.dataclass(frozen=True)
class Neighbours:
    """Chosen documents near one.

    Attributes:
        nearest: Cosine and position, the nearest first; the document itself is not among them.
        compared: Chosen documents that it was compared with.
        chosen: Chosen documents that there are.
    """

    nearest: list[tuple[float, int]]
    compared: int
    chosen: int


def nearest_chosen(
    about: Selected,
    connection: "duckdb.DuckDBPyConnection",
    position: int,
    *,
    count: int = NUM_NEIGHBOURS,
    most_compared: int = MOST_COMPARED,
) -> Neighbours:
    """The chosen documents nearest to the release's document at a position."""
    documents = Rows(about.store, about.documents)
    crawl, row = documents.place(position)
    part, row = documents.part(crawl, row)  # embeddings stand in the documents' order, part by part
    own_D = open_array(about.store, about.embeddings[crawl], part)[row]
    chosen = int(about.manifest["counts"]["kept"])
    mask = duck.parts_sql(about.store, [about.selection], "position, selected")
    drawn = f"SELECT position FROM {mask} WHERE selected AND position <> ?"
    if chosen > most_compared:
        drawn += f" ORDER BY hash(position), position LIMIT {int(most_compared)}"
    index = duck.parts_sql(about.store, [about.index], "position, crawl, shard, row")
    reader = connection.execute(
        f"""
        SELECT crawl, shard, list(position ORDER BY row) AS positions, list(row ORDER BY row) AS rows
        FROM ({drawn}) JOIN {index} USING (position) GROUP BY ALL
        """,
        [position],
    )
    compared = 0

    def chunks() -> Iterator[Chunk]:
        nonlocal compared
        while (found := reader.fetchone()) is not None:
            vectors = open_array(about.store, about.embeddings[found[0]], found[1])
            for first in range(0, len(found[2]), _CHUNK):
                positions_m = np.array(found[2][first : first + _CHUNK], np.int64)
                compared += len(positions_m)
                yield positions_m, vectors[found[3][first : first + _CHUNK]]

    best = nearest(own_D, chunks(), count)
    return Neighbours(best, compared, chosen)
