"""Lazy greedy on neighbour lists. Knows no embedding, quality or certificate.

Shape suffixes: N documents, R references, k list entries, P picks.

Maximises ``sum of linear over S + weight * mean over references of max(floor, best listed similarity in S)``.
Gains are kept exact: a pick raises the best similarity of few references, and only documents listed there lose
gain. Since gains only fall, a heap of their old values gives the greedy choice (Minoux 1978).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.selection.facility.lists import NeighbourLists


@dataclass(kw_only=True)
class CoverageState:
    """What a partial mask covers, and what each further document would add.

    Attributes:
        best_R: float32 similarity of the best listed document of the mask, the list's floor where none is listed.
        gains_N: float64 gain of each document on being added, its linear part included.
        scale: ``weight / R``.
    """

    lists: NeighbourLists
    best_R: NDArray[np.float32]
    gains_N: NDArray[np.float64]
    scale: float

    def add(self, document: int) -> None:
        """Counts a document as selected; every gain is current afterwards (its own keeps the last value)."""
        start, stop = self.entries.offsets_N1[document : document + 2]
        references_e = self.entries.references_E[start:stop]
        new_e, old_e = self.entries.similarities_E[start:stop], self.best_R[references_e]
        better_e = new_e > old_e
        if not better_e.any():
            return
        references_e, new_e, old_e = references_e[better_e], new_e[better_e], old_e[better_e]
        listed_ek = self.similarities_Rk[references_e]
        lost_ek = np.minimum(listed_ek, new_e[:, None]) - old_e[:, None]
        falls_ek = lost_ek > 0
        np.subtract.at(
            self.gains_N,
            self.documents_Rk[references_e][falls_ek],
            lost_ek[falls_ek].astype(np.float64) * self.scale,
        )
        self.best_R[references_e] = new_e

    def __post_init__(self) -> None:
        self.entries = self.lists.by_document
        self.documents_Rk = self.lists.documents_Rk.numpy()
        self.similarities_Rk = self.lists.similarities_Rk.numpy()


def empty_state(
    lists: NeighbourLists,
    linear_N: NDArray[np.float64],
    weight: float,
    floor_R: NDArray[np.float32] | None = None,
) -> CoverageState:
    """The state of the empty mask.

    Args:
        lists: Of every reference.
        linear_N: Linear part of each document.
        weight: Of the mean coverage.
        floor_R: What counts as covered already; the lists' own floor when none. A higher one makes early picks
            compete for what they alone can give.
    """
    scale = weight / lists.num_references
    covered_R = lists.floor_R.numpy().copy() if floor_R is None else floor_R.copy()
    above_Rk = np.maximum(lists.similarities_Rk.numpy() - covered_R[:, None], 0)
    gains_N = np.bincount(
        lists.documents_Rk.reshape(-1).numpy(), weights=above_Rk.reshape(-1), minlength=lists.num_documents
    )
    return CoverageState(
        lists=lists,
        best_R=covered_R,
        gains_N=linear_N + scale * gains_N,
        scale=scale,
    )


def lazy_greedy(
    state: CoverageState,
    costs_N: NDArray[np.float64],
    groups_N: NDArray[np.int64],
    limits: Sequence[float],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Picks documents while one fits, the largest gain per cost first, equal ones in row order.

    Args:
        state: Of the empty mask, or of what is selected already; it is advanced.
        costs_N: What each document takes of its group's limit, positive: one, or its tokens.
        groups_N: Group of each document.
        limits: What the documents of each group may take.

    Returns:
        Picks in order, shape (P,), and the gain of each at its pick.
    """
    gains_N, left = state.gains_N, list(limits)
    costs, groups = costs_N.tolist(), groups_N.tolist()
    heap = list(zip((-gains_N / costs_N).tolist(), range(len(gains_N)), strict=True))
    heapq.heapify(heap)
    picks, values = [], []
    smallest = min(costs)
    while heap and max(left) >= smallest:
        negative, document = heap[0]
        current = -float(gains_N[document]) / costs[document]
        if current > negative:
            heapq.heapreplace(heap, (current, document))
            continue
        heapq.heappop(heap)
        if costs[document] <= left[groups[document]]:
            left[groups[document]] -= costs[document]
            picks.append(document)
            values.append(float(gains_N[document]))
            state.add(document)
    return np.array(picks, dtype=np.int64), np.array(values)
