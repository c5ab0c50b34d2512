"""The embeddings of a sample of a release, laid out in two dimensions. Knows vectors and rows; knows no plot.

Shape suffixes: n documents of the sample, D dimensions.
"""

import dataclasses
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline import duck
from datamask_pipeline.look.selected import Selected
from datamask_pipeline.storage import open_array

if TYPE_CHECKING:
    import duckdb

SAMPLE: Final = 4_000


@dataclasses.dataclass(frozen=True)
class EmbeddingMap:
    """Places of a sample's documents, and who is among them.

    Attributes:
        places: (n, 2) first two principal components.
        explained: Shares of the sample's variance that the two explain.
        groups: By name, which documents of the sample belong to it; empty where nobody knows.
        rows: Documents that the sample was drawn from.
    """

    places: NDArray[np.float64]
    explained: tuple[float, float]
    groups: dict[str, NDArray[np.bool_]]
    rows: int


def embedding_map(
    about: Selected, connection: "duckdb.DuckDBPyConnection", *, sample: int = SAMPLE
) -> EmbeddingMap:
    """The sample's map; the same each time.

    "Top quality" and "top diversity" are as large a share of the sample as was chosen of all: the documents with the
    largest quality, and with the largest marginal of diversity.

    Args:
        about: The selection.
        connection: A database over the record.
        sample: Documents drawn, at most.
    """
    rows = duck.parts_sql(about.store, [about.selection], "position, selected, quality, diversity_marginal")
    found = connection.execute(
        f"""
        SELECT i.crawl, i.shard, i.row, s.selected, s.quality, s.diversity_marginal
        FROM (SELECT * FROM {rows} ORDER BY hash(position), position LIMIT {int(sample)}) AS s
        JOIN {duck.parts_sql(about.store, [about.index], "position, crawl, shard, row")} AS i USING (position)
        ORDER BY position
        """
    ).fetchall()
    selected_n, quality_n, diversity_n = (
        np.array([row[column] for row in found], float) for column in (3, 4, 5)
    )
    share = float(about.manifest["counts"]["kept"]) / max(about.selection.rows, 1)
    groups = {"selected": selected_n == 1, "top quality": _top(quality_n, share)}
    if np.isfinite(diversity_n).all():
        groups["top diversity"] = _top(diversity_n, share)
    vectors_nD = _vectors(about, [row[:3] for row in found])
    places, explained = _principal(vectors_nD)
    return EmbeddingMap(places, explained, groups, about.selection.rows)


def _top(values_n: NDArray[np.float64], share: float) -> NDArray[np.bool_]:
    """The share of the sample with the largest values."""
    chosen_n = np.zeros(len(values_n), bool)
    chosen_n[np.argsort(-values_n, kind="stable")[: round(share * len(values_n))]] = True
    return chosen_n


def _vectors(about: Selected, places: list[tuple[str, str, int]]) -> NDArray[np.float32]:
    """The vectors at crawl, shard and row, one part after another."""
    by_part: dict[tuple[str, str], list[int]] = {}
    for number, (crawl, shard, _) in enumerate(places):
        by_part.setdefault((crawl, shard), []).append(number)
    vectors_nD: NDArray[np.float32] | None = None
    for (crawl, shard), numbers in by_part.items():
        part = open_array(about.store, about.embeddings[crawl], shard)
        if vectors_nD is None:
            vectors_nD = np.empty((len(places), part.shape[1]), np.float32)
        vectors_nD[numbers] = part[[places[number][2] for number in numbers]]
    assert vectors_nD is not None, "a selection has documents"
    return vectors_nD


def _principal(vectors_nD: NDArray[np.float32]) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """The first two principal components; each one's largest weight is positive, so that no run turns the map round."""
    centred_nD = vectors_nD.astype(np.float64) - vectors_nD.mean(axis=0, dtype=np.float64)
    variances_D, axes_DD = np.linalg.eigh(centred_nD.T @ centred_nD)
    axes_2D = axes_DD[:, ::-1][:, :2].T
    axes_2D = axes_2D * np.sign(axes_2D[np.arange(2), np.abs(axes_2D).argmax(axis=1)])[:, None]
    total = float(variances_D.sum()) or 1.0
    return centred_nD @ axes_2D.T, (float(variances_D[-1]) / total, float(variances_D[-2]) / total)
