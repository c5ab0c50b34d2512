"""Sets of a given size that weigh quality against the similar pairs among them. Knows no learner or normalisation.

All maximise ``sum of linear_i over the picks - scale * sum of similarity over the edges inside the picks`` (Boether et
al. 2025, arXiv 2402.16442). A document's gain is its own term less what its edges to the picks cost: it only falls.

Shape suffixes: N documents, E edges, C candidates, P picks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

Rows = NDArray[np.int64]
Doubles = NDArray[np.float64]
FEW = 24


@dataclass(frozen=True, kw_only=True)
class GraphTask:
    """What an opponent is given.

    Attributes:
        left_E: One end of each edge; each edge is named once.
        right_E: Its other end.
        similarity_E: Above 0.
        linear_N: What a document adds by itself.
        scale: What a similarity inside the picks costs, per unit.
        budget: The number of documents to pick.
    """

    left_E: Rows
    right_E: Rows
    similarity_E: Doubles
    linear_N: Doubles
    scale: float
    budget: int

    def costs(self) -> csr_array:
        """What pairs cost, symmetric, shape (N, N)."""
        left_E, right_E = self.left_E.astype(np.int32), self.right_E.astype(np.int32)
        ends = np.concatenate([left_E, right_E]), np.concatenate([right_E, left_E])
        listed = coo_array(
            (np.tile(self.scale * self.similarity_E, 2), ends), shape=(len(self.linear_N),) * 2
        )
        listed.has_canonical_format = True  # spares the sorting within rows
        return listed.tocsr()

    def value_of(self, picks: Rows) -> float:
        """The objective."""
        picked_N = np.zeros(len(self.linear_N), dtype=bool)
        picked_N[picks] = True
        inside_E = picked_N[self.left_E] & picked_N[self.right_E]
        return float(self.linear_N[picks].sum() - self.scale * self.similarity_E[inside_E].sum())


def greedy(task: GraphTask) -> Rows:
    """Picks of greedy, in no order; of equal gains the lowest row goes first."""
    return greedy_along(task.costs(), task.linear_N, task.budget)


def edges_of(costs: csr_array, rows_C: Rows) -> tuple[Rows, Rows]:
    """Places in the matrix of all edges of some rows, and each edge's place among the rows."""
    starts_C = costs.indptr[rows_C].astype(np.int64)
    sizes_C = costs.indptr[rows_C + 1] - starts_C
    ends_C = np.cumsum(sizes_C)
    return np.arange(ends_C[-1]) + np.repeat(starts_C - ends_C + sizes_C, sizes_C), np.repeat(
        np.arange(len(rows_C)), sizes_C
    )


def greedy_along(costs: csr_array, linear_N: Doubles, budget: int) -> Rows:
    """Greedy in batches.

    With k picks to go those that greedy makes at or above the k-th largest gain are all among the k documents that lead
    now. Of these every one that leads all its neighbours among them will be picked at the gain it has now.
    """
    gains_N, num = linear_N.copy(), len(linear_N)
    picked_N, alive_N = np.zeros(num, dtype=bool), np.zeros(num, dtype=bool)
    place_N = np.empty(num, dtype=np.int64)
    left = budget
    while left > FEW:
        limit = np.partition(gains_N, num - left)[num - left]
        above_N = gains_N > limit
        ties = np.flatnonzero(gains_N == limit)[: left - int(above_N.sum())]
        rows_C = np.sort(np.concatenate([np.flatnonzero(above_N), ties]))
        edges, from_ = edges_of(costs, rows_C)
        place_N[rows_C] = np.arange(len(rows_C))
        alive_N[rows_C] = True
        among = alive_N[costs.indices[edges]]
        alive_N[rows_C] = False
        edges, from_ = edges[among], from_[among]
        to, cost = place_N[costs.indices[edges]], costs.data[edges]
        gains_C, alive_C = gains_N[rows_C], np.ones(len(rows_C), dtype=bool)
        chosen_C = np.zeros(len(rows_C), dtype=bool)
        while alive_C.any():
            gain_from, gain_to = gains_C[from_], gains_C[to]
            leads_C = alive_C.copy()
            leads_C[from_[(gain_to > gain_from) | ((gain_to == gain_from) & (to < from_))]] = False
            chosen_C |= leads_C
            hit = leads_C[from_]
            gains_C -= np.bincount(to[hit], cost[hit], len(rows_C))
            alive_C &= ~leads_C & (gains_C >= limit)
            kept = alive_C[from_] & alive_C[to]
            from_, to, cost = from_[kept], to[kept], cost[kept]
        rows_P = rows_C[chosen_C]
        edges, _ = edges_of(costs, rows_P)
        gains_N -= np.bincount(costs.indices[edges], costs.data[edges], num)
        gains_N[rows_P] = -np.inf
        picked_N[rows_P] = True
        left -= len(rows_P)
    indptr, indices, data = costs.indptr, costs.indices, costs.data
    for _ in range(left):
        row = gains_N.argmax()
        picked_N[row] = True
        gains_N[row] = -np.inf
        own = slice(indptr[row], indptr[row + 1])
        gains_N[indices[own]] -= data[own]
    return np.flatnonzero(picked_N)


def bounding_and_partitions(
    task: GraphTask,
    partitions: int = 8,
    rounds: int = 8,
    seed: int = 0,
    *,
    adaptive: bool = True,
    bounding: bool = True,
) -> Rows:
    """Picks of Boether et al.'s method, ascending: exact bounding, then greedy in random parts, in rounds.

    Args:
        task: What to maximise.
        partitions: Parts of the first round, each of which picks its share for itself.
        rounds: From all that bounding left open to those still to pick, by a line.
        seed: Of the parts.
        adaptive: Have fewer parts in later rounds, none larger than in the first; else as many in each.
        bounding: Whether bounds settle documents first.
    """
    costs, rng = task.costs(), np.random.default_rng(seed)
    picked_N, open_N = np.zeros(len(task.linear_N), dtype=bool), np.ones(len(task.linear_N), dtype=bool)
    if bounding:
        picked_N, open_N = _settled(costs, task.linear_N, task.budget)
    left = task.budget - int(picked_N.sum())
    rows = np.flatnonzero(open_N)
    linear_N = task.linear_N - costs @ picked_N
    first = len(rows)
    for turn in range(1, rounds + 1):
        target = first - (first - left) * turn // rounds
        num_parts = -(-partitions * len(rows) // max(1, first)) if adaptive else partitions
        parts = np.array_split(rng.permutation(rows), max(1, num_parts))
        shares = [len(share) for share in np.array_split(np.arange(target), len(parts))]
        rows = np.concatenate([
            part[greedy_along(costs[part][:, part], linear_N[part], share)]
            for part, share in zip(parts, shares, strict=True)
        ])  # fmt: skip
    return np.sort(np.concatenate([np.flatnonzero(picked_N), rows]))


def _settled(costs: csr_array, linear_N: Doubles, budget: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Documents that some best set has, and those that it may have or not.

    A document's gain is at most what it is beside the picks so far, and at least what it is beside all that are open as
    well. One whose most is under the least of as many as are still to pick is out; one whose least is above the most
    of all but fewer than are still to pick is in.
    """
    picked_N, open_N = np.zeros(len(linear_N), dtype=bool), np.ones(len(linear_N), dtype=bool)
    while True:
        before = int(open_N.sum())
        left = budget - int(picked_N.sum())
        if left == 0:
            return picked_N, np.zeros_like(open_N)
        most_N = linear_N - costs @ picked_N
        least_N = most_N - costs @ open_N
        open_N &= most_N >= np.partition(least_N[open_N], before - left)[before - left]
        least_N = most_N - costs @ open_N
        num_open = int(open_N.sum())
        grown_N = open_N & (least_N > np.partition(most_N[open_N], num_open - left)[num_open - left])
        picked_N |= grown_N
        open_N &= ~grown_N
        if int(open_N.sum()) == before:
            return picked_N, open_N
