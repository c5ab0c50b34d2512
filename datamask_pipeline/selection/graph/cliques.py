"""A graph's similarities as sums of cliques', which bound any mask. Knows no mask's making, budget or quality.

Where n documents of a clique are selected, n (n - 1) / 2 of its pairs are, and that is at least ``t n - f(t)`` for every
slope t, where f(t) is the most that ``t j - j (j - 1) / 2`` is for a whole number j. A pair is a clique of two.

Shape suffixes: N documents, E edges, C cliques, M members of all cliques one after another.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datamask_pipeline.diversity.pair_graph import SimilarityGraph

Numbers = NDArray[np.float64]
Rows = NDArray[np.int64]
MOST_PEELED = 400_000
"""Edges of a graph that is taken apart into cliques, by Python; of a larger one every edge stands by itself."""
NOTHING = 1e-12
"""What is left of a similarity below which an edge is gone."""


@dataclass(frozen=True, kw_only=True)
class Cliques:
    """Cliques of documents.

    Attributes:
        rows_M: The members.
        clique_M: The number of the clique of each, rising.
        weight_C: float64, above 0: what each pair of a clique's has of the similarity of its edge.
    """

    rows_M: Rows
    clique_M: Rows
    weight_C: Numbers

    @property
    def sizes_C(self) -> Rows:
        """How many members each has."""
        return np.bincount(self.clique_M, minlength=len(self.weight_C))

    def counted(self, values_N: Numbers) -> Numbers:
        """The sum over each one's members: float64 of shape (C,)."""
        return np.bincount(self.clique_M, values_N[self.rows_M], len(self.weight_C)).astype(np.float64)

    def spread(self, values_C: Numbers, num_rows: int) -> Numbers:
        """The sum over each document's cliques: float64 of shape (N,)."""
        return np.bincount(self.rows_M, values_C[self.clique_M], num_rows).astype(np.float64)

    def conjugate(self, slopes_C: Numbers) -> tuple[Numbers, Numbers]:
        """f of each slope, among numbers that the clique has, and where it is reached."""
        reached_C = np.clip(np.ceil(slopes_C), 0, self.sizes_C)
        return slopes_C * reached_C - reached_C * (reached_C - 1) / 2, reached_C

    def table(self, slopes_C: Numbers, rows_N: Rows) -> pa.Table:
        """A row a member: what `certified` reads again.

        Args:
            slopes_C: A slope of each clique.
            rows_N: What the documents are called there.
        """
        return pa.table(
            {
                "clique": self.clique_M,
                "row": rows_N[self.rows_M],
                "weight": self.weight_C[self.clique_M],
                "slope": slopes_C[self.clique_M],
            }
        )


def certified(
    table: pa.Table, graph: SimilarityGraph, rows_N: Rows
) -> tuple[Cliques, Numbers, tuple[Rows, Rows, Numbers]]:
    """Cliques and slopes out of a table; and pairs of documents whose cliques weigh more than their similarity, by how much.

    Args:
        table: As of `Cliques.table`.
        graph: With the similarities.
        rows_N: What the documents are called in the table.

    Raises:
        ValueError: saying in which clique they are no cliques of these documents with a weight and a slope each.
    """
    name_M, row_M, weight_M, slope_M = (
        table.column(name).to_numpy() for name in ("clique", "row", "weight", "slope")
    )
    _, first_C, clique_M = np.unique(name_M, return_index=True, return_inverse=True)
    weight_C, slope_C = weight_M[first_C], slope_M[first_C]
    order_N = np.argsort(rows_N, kind="stable")
    place_M = order_N[np.minimum(np.searchsorted(rows_N[order_N], row_M), len(rows_N) - 1)]
    of_clique = {
        "has a weight that is no positive number": ~(np.isfinite(weight_M) & (weight_M > 0)),
        "has a slope that is no number from 0 on": ~(np.isfinite(slope_M) & (slope_M >= 0)),
        "has members of two weights": weight_M != weight_C[clique_M],
        "has members of two slopes": slope_M != slope_C[clique_M],
        "has a document of another block": rows_N[place_M] != row_M,
    }
    for problem, wrong_M in of_clique.items():
        if wrong_M.any():
            raise ValueError(f"clique {int(name_M[np.argmax(wrong_M)])} {problem}")
    order_M = np.argsort(clique_M, kind="stable")
    cliques = Cliques(rows_M=place_M[order_M], clique_M=clique_M[order_M], weight_C=weight_C)
    return cliques, slope_C, _above(cliques, graph)


def _above(cliques: Cliques, graph: SimilarityGraph) -> tuple[Rows, Rows, Numbers]:
    """Pairs of documents whose cliques weigh more than their similarity, 0 without an edge, and by how much."""
    ends_P, others_P, clique_P = _pairs(cliques)
    named_P = np.minimum(ends_P, others_P) * graph.num_rows + np.maximum(ends_P, others_P)
    known_E = graph.left_E * graph.num_rows + graph.right_E
    named_A = np.concatenate([named_P, known_E])
    more_A = np.concatenate([cliques.weight_C[clique_P], -graph.similarity_E])
    named_a, pair_A = np.unique(named_A, return_inverse=True)
    more_a = np.bincount(pair_A, more_A, len(named_a)).astype(np.float64)
    above_a = more_a > 0
    left_a, right_a = np.divmod(named_a[above_a], graph.num_rows)
    return left_a, right_a, more_a[above_a]


def _pairs(cliques: Cliques) -> tuple[Rows, Rows, Rows]:
    """Both ends of every pair of every clique, and its clique."""
    sizes_C = cliques.sizes_C
    starts_C = np.cumsum(sizes_C) - sizes_C
    one, other, of = ([np.empty(0, np.int64)] for _ in range(3))
    for size in np.unique(sizes_C):
        among_c = np.flatnonzero(sizes_C == size)
        left_p, right_p = np.triu_indices(size, 1)
        one.append(cliques.rows_M[starts_C[among_c][:, None] + left_p].ravel())
        other.append(cliques.rows_M[starts_C[among_c][:, None] + right_p].ravel())
        of.append(np.repeat(among_c, len(left_p)))
    return np.concatenate(one), np.concatenate(other), np.concatenate(of)


def cliques_of(graph: SimilarityGraph) -> Cliques:
    """Cliques whose weights sum up to the similarities: as large a one as grows from the heaviest edge left, and so on.

    A clique grows by whom its lowest similarity stays the highest with, and takes that much of each of its edges.
    """
    left, right, similarity = graph.left_E.tolist(), graph.right_E.tolist(), graph.similarity_E.tolist()
    if len(left) > MOST_PEELED:
        numbers_E = np.arange(len(left))
        return Cliques(
            rows_M=np.stack([graph.left_E, graph.right_E], axis=1).ravel(),
            clique_M=np.repeat(numbers_E, 2),
            weight_C=graph.similarity_E,
        )
    near: list[dict[int, float]] = [{} for _ in range(graph.num_rows)]
    for one, other, value in zip(left, right, similarity, strict=True):
        near[one][other] = near[other][one] = value
    heap = [(-value, one, other) for one, other, value in zip(left, right, similarity, strict=True)]
    heapq.heapify(heap)
    found: list[list[int]] = []
    weights: list[float] = []
    while heap:
        known, one, other = heapq.heappop(heap)
        value = near[one].get(other)
        if value is None:
            continue
        if value < -known:
            heapq.heappush(heap, (-value, one, other))
            continue
        members, weight = _grown(near, one, other)
        found.append(members)
        weights.append(weight)
        for place, member in enumerate(members):
            for earlier in members[:place]:
                rest = near[member][earlier] - weight
                if rest > NOTHING:
                    near[member][earlier] = near[earlier][member] = rest
                else:
                    del near[member][earlier], near[earlier][member]
        if other in near[one]:
            heapq.heappush(heap, (-near[one][other], one, other))
    sizes = [len(members) for members in found]
    return Cliques(
        rows_M=np.array([row for members in found for row in members], np.int64),
        clique_M=np.repeat(np.arange(len(found)), sizes),
        weight_C=np.array(weights, np.float64),
    )


def _grown(near: list[dict[int, float]], one: int, other: int) -> tuple[list[int], float]:
    """The members of a clique around an edge, and their lowest similarity."""
    members, weight = [one, other], near[one][other]
    common = {row: min(near[one][row], near[other][row]) for row in near[one].keys() & near[other].keys()}
    while common:
        row = max(common, key=lambda each: (common[each], -each))
        members.append(row)
        weight = min(weight, common[row])
        common = {each: min(common[each], near[row][each]) for each in common.keys() & near[row].keys()}
    return members, weight
