"""Swaps of a selected and an unselected document on neighbour lists. Knows no embedding, quality or certificate.

Shape suffixes: N documents, R references, k list entries, L live entries (those a swap could gain from), P pairs.

A round finds for every unselected document the selected one that it best replaces, as FastPAM does for medoids
(Schubert and Rousseeuw 2019): what it adds, less what is lost by dropping the other, plus what it saves of that
loss. Swaps that share no reference add up exactly, so a round makes all such, the best first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamask_pipeline.selection.facility.evaluate import Coverage, listed_coverage
from datamask_pipeline.selection.facility.lists import NeighbourLists

MOST_ROUNDS = 60
LEAST_SHARE = 0.002
"""Rounds end with one that gains less than this share of what all gained together."""
RESOLUTION = 1e-9
"""Least gain of a swap, as a share of the selected documents' mean part in the objective: less is rounding."""


@dataclass(frozen=True, kw_only=True)
class Swapped:
    """A mask as rows, rising, and how many swaps led to it."""

    selected_T: Tensor
    num_swaps: int


def swap_on_lists(
    lists: NeighbourLists,
    linear_N: Tensor,
    weight: float,
    groups_N: Tensor,
    floor_R: Tensor,
    selected_T: Tensor,
) -> Swapped:
    """Swaps within groups until none raises ``sum of linear + weight * listed coverage`` by enough.

    Args:
        lists: Of every reference.
        linear_N: float64 linear part of each document.
        weight: Of the mean coverage.
        groups_N: int64 group of each document; a swap stays within one.
        floor_R: float32, what counts as covered where no selected document is listed.
        selected_T: int64 rows.
    """
    scale = weight / lists.num_references
    mask_N = np.zeros(lists.num_documents, dtype=bool)
    mask_N[selected_T.numpy()] = True
    total, gained = 0, 0.0
    for _ in range(MOST_ROUNDS):
        rows_T = torch.from_numpy(np.flatnonzero(mask_N))
        coverage = listed_coverage(lists, rows_T, floor_R)
        worth = abs(float(linear_N[rows_T].sum()) + weight * coverage.mean)
        moves = _Round(lists, linear_N.numpy(), scale, groups_N.numpy(), coverage, mask_N)
        out, into, gain = moves.chosen(RESOLUTION * worth / max(len(rows_T), 1))
        mask_N[out], mask_N[into] = False, True
        total, gained = total + len(out), gained + gain
        if gain <= LEAST_SHARE * gained:
            break
    return Swapped(selected_T=torch.from_numpy(np.flatnonzero(mask_N)), num_swaps=total)


class _Round:
    """All swaps of one unselected with one selected document at a mask."""

    def __init__(
        self,
        lists: NeighbourLists,
        linear_N: NDArray[np.float64],
        scale: float,
        groups_N: NDArray[np.int64],
        coverage: Coverage,
        mask_N: NDArray[np.bool_],
    ) -> None:
        self.lists, self.groups_N, self.mask_N = lists, groups_N, mask_N
        self.second_R = coverage.second_R.numpy()
        self.owners_R, self.runners_R = coverage.owner_R.numpy(), coverage.runner_R.numpy()
        num_documents = lists.num_documents
        best_R, second_R = coverage.best_R.double().numpy(), coverage.second_R.double().numpy()
        similarities_Rk, documents_Rk = lists.similarities_Rk.numpy(), lists.documents_Rk.numpy()
        live_Rk = (similarities_Rk > self.second_R[:, None]) & ~mask_N[documents_Rk]
        references_L = np.nonzero(live_Rk)[0]
        documents_L = documents_Rk[live_Rk]
        similarities_L = similarities_Rk[live_Rk].astype(np.float64)
        owned_R = self.owners_R >= 0
        added_L = np.maximum(similarities_L - best_R[references_L], 0)
        self.gains_N = linear_N + scale * np.bincount(documents_L, weights=added_L, minlength=num_documents)
        lost_N = np.bincount(
            self.owners_R[owned_R], weights=(best_R - second_R)[owned_R], minlength=num_documents
        )
        self.losses_N = np.where(mask_N, linear_N + scale * lost_N, np.inf)
        saved_L = np.minimum(similarities_L, best_R[references_L]) - second_R[references_L]
        paired_L = owned_R[references_L]
        self._pair(documents_L[paired_L], self.owners_R[references_L[paired_L]], scale * saved_L[paired_L])

    def _pair(
        self, into_L: NDArray[np.int64], out_L: NDArray[np.int64], saved_L: NDArray[np.float64]
    ) -> None:
        """For each unselected document the selected one of its group that it replaces best among those it knows."""
        num_documents = self.lists.num_documents
        pairs_P, place_L = np.unique(into_L * num_documents + out_L, return_inverse=True)
        into_P, out_P = np.divmod(pairs_P, num_documents)
        net_P = self.gains_N[into_P] - self.losses_N[out_P] + np.bincount(place_L, saved_L, len(pairs_P))
        net_P[self.groups_N[into_P] != self.groups_N[out_P]] = -np.inf
        order_P = np.lexsort((-net_P, into_P))
        firsts = order_P[np.unique(into_P[order_P], return_index=True)[1]]
        self.partner_N = np.full(num_documents, -1)
        self.net_N = np.full(num_documents, -np.inf)
        self.partner_N[into_P[firsts]], self.net_N[into_P[firsts]] = out_P[firsts], net_P[firsts]

    def chosen(self, least: float) -> tuple[list[int], list[int], float]:
        """Rows that leave, rows that come, and what their swaps gain together: each swap more than `least`."""
        cheap = {
            int(group): _Cheapest(self.losses_N, np.flatnonzero(self.mask_N & (self.groups_N == group)))
            for group in np.unique(self.groups_N)
        }
        cheapest_N = np.array([cheap[group].loss for group in range(max(cheap) + 1) if group in cheap])
        cheapest_N = cheapest_N[np.searchsorted(sorted(cheap), self.groups_N)]
        hope_N = np.maximum(self.net_N, self.gains_N - cheapest_N)
        hope_N[self.mask_N] = -np.inf
        candidates = np.flatnonzero(hope_N > least)
        owned, second = _ByDocument(self.owners_R), _ByDocument(self.runners_R)
        entries = self.lists.by_document
        touched_R = np.zeros(self.lists.num_references, dtype=bool)
        out: list[int] = []
        into: list[int] = []
        gone: set[int] = set()
        total = 0.0
        for document in candidates[np.argsort(-hope_N[candidates], kind="stable")].tolist():
            leaves, gain = int(self.partner_N[document]), float(self.net_N[document])
            other = cheap[int(self.groups_N[document])].beside(gone)
            if other is not None and self.gains_N[document] - self.losses_N[other] > gain:
                leaves, gain = other, float(self.gains_N[document] - self.losses_N[other])
            if gain <= least or leaves in gone:
                continue
            span = slice(*entries.offsets_N1[document : document + 2])
            near_r = entries.references_E[span]
            near_r = near_r[entries.similarities_E[span] > self.second_R[near_r]]
            parts = (near_r, owned.of(leaves), second.of(leaves))
            if any(touched_R[part].any() for part in parts):
                continue
            for part in parts:
                touched_R[part] = True
            gone.add(leaves)
            out.append(leaves)
            into.append(document)
            total += gain
        return out, into, total


class _Cheapest:
    """The selected documents of a group, those of the smallest loss first."""

    def __init__(self, losses_N: NDArray[np.float64], members_t: NDArray[np.int64]) -> None:
        self._order = members_t[np.argsort(losses_N[members_t], kind="stable")].tolist()
        self._place = 0
        self.loss = float(losses_N[self._order[0]]) if self._order else np.inf

    def beside(self, gone: set[int]) -> int | None:
        """The first that has not gone."""
        while self._place < len(self._order) and self._order[self._place] in gone:
            self._place += 1
        return self._order[self._place] if self._place < len(self._order) else None


class _ByDocument:
    """References grouped by the document that each names; -1 names none."""

    def __init__(self, named_R: NDArray[np.int64]) -> None:
        self._order_R = np.argsort(named_R, kind="stable")
        self._named_R = named_R[self._order_R]

    def of(self, document: int) -> NDArray[np.int64]:
        """The references that name it."""
        start, stop = np.searchsorted(self._named_R, (document, document + 1))
        return self._order_R[start:stop]
