"""Tabu searches: side by side where the objective is a quadratic form of the mask, else one after the other by an exact
model of exchanges. Knows no metric, moments or relaxation.

Each move is the best exchange of a document that may leave for one that may enter, whether it gains or not; one that has
moved stays for some moves, so that a search leaves masks that no exchange improves.

Shape suffixes: N documents, R searches.

Source: tabu search for the maximum diversity problem, Palubeckis 2007 and Wu and Hao 2013.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.diversity.swap_models import SwapModel
from datamask_pipeline.selection.moments.pairs import best_places

Floats = NDArray[np.float64]
Masks = NDArray[np.bool_]

MOST_STAYED = (10, 20)
"""For how many moves at most a document that came in stays in, and one that went out stays out."""
EXCHANGED = (0.1, 0.3)
"""Share of a mask that is exchanged at random where searches begin again: of the best of all, and of a search's own best."""

WALKED = (64, 16)
"""How many documents outside and inside a mask an exact model is asked for at each move, at most."""


@dataclass(frozen=True, kw_only=True)
class Quadratic:
    """A block's objective: ``c . m + m' B m / 2`` for masks m of one number of documents.

    Attributes:
        linear_N: c.
        bends_NN: B, symmetric; in float32, as searches only have to find what is then measured exactly.
        groups_N: Documents are exchanged within a group.
    """

    linear_N: Floats
    bends_NN: NDArray[np.float32]
    groups_N: NDArray[np.int64]

    def bent(self, masks_RN: Masks) -> Floats:
        """``B m`` of each mask, summed document by document: it does not depend on threads."""
        return np.stack([self.bends_NN[mask_N].sum(0, dtype=np.float64) for mask_N in masks_RN])


def best_found(
    problem: Quadratic, starts_RN: Masks, *, num_turns: int, num_moves: int, draws: np.random.Generator
) -> Masks:
    """The best mask of R searches in several turns.

    In each turn but the first every second search begins from the best of all, the others from their own best, exchanged in
    part at random.

    Args:
        problem: What is maximised.
        starts_RN: Where the first turn begins.
        num_turns: How many.
        num_moves: Of each search in each turn.
        draws: Of kicks, and of how long documents stay.
    """
    best_RN, best_R = searched(problem, starts_RN, num_moves, draws)
    for _ in range(num_turns - 1):
        best_N = best_RN[int(best_R.argmax())]
        begun = [
            kicked(own_N if number % 2 else best_N, problem.groups_N, EXCHANGED[number % 2], draws)
            for number, own_N in enumerate(best_RN)
        ]
        found_RN, found_R = searched(problem, np.stack(begun), num_moves, draws)
        better_R = found_R > best_R
        best_RN[better_R], best_R[better_R] = found_RN[better_R], found_R[better_R]
    best_N = best_RN[int(best_R.argmax())]
    return best_N


def searched(
    problem: Quadratic, masks_RN: Masks, num_moves: int, draws: np.random.Generator
) -> tuple[Masks, Floats]:
    """The best mask that each search came by, and its value; arguments as of `best_found`."""
    bends_NN, groups_N = problem.bends_NN, problem.groups_N
    half_N = np.diag(bends_NN).astype(np.float64) / 2
    number, size = masks_RN.shape
    each_R, is_one_group = np.arange(number), not groups_N.any()
    stay_in, stay_out = _stays(masks_RN[0])
    inside_RN, until_RN, bent_RN = masks_RN.copy(), np.zeros((number, size), np.int32), problem.bent(masks_RN)
    values_R = np.array(
        [
            (problem.linear_N + bent_N / 2)[mask_N].sum()
            for bent_N, mask_N in zip(bent_RN, masks_RN, strict=True)
        ]
    )
    scores_RN = problem.linear_N + bent_RN
    best_RN, best_R = masks_RN.copy(), values_R.copy()
    for move in range(num_moves):
        free_RN = until_RN <= move
        leave_RN = np.where(inside_RN & free_RN, half_N - scores_RN, -np.inf)
        enter_RN = np.where(free_RN & ~inside_RN, half_N + scores_RN, -np.inf)
        # The best of those who may leave with the best for it, or of those who may enter.
        leaves_R, enters_R = leave_RN.argmax(1), enter_RN.argmax(1)
        for_it_RN, for_this_RN = enter_RN - bends_NN[leaves_R], leave_RN - bends_NN[enters_R]
        if not is_one_group:
            for_it_RN[groups_N != groups_N[leaves_R][:, None]] = -np.inf
            for_this_RN[groups_N != groups_N[enters_R][:, None]] = -np.inf
        into_R, out_R = for_it_RN.argmax(1), for_this_RN.argmax(1)
        by_leaving_R = leave_RN[each_R, leaves_R] + for_it_RN[each_R, into_R]
        by_entering_R = enter_RN[each_R, enters_R] + for_this_RN[each_R, out_R]
        is_leaving_R = by_leaving_R >= by_entering_R
        into_R, out_R = np.where(is_leaving_R, into_R, enters_R), np.where(is_leaving_R, leaves_R, out_R)
        gains_R = np.maximum(by_leaving_R, by_entering_R)
        moves_R = np.isfinite(gains_R)
        at, into, out = each_R[moves_R], into_R[moves_R], out_R[moves_R]
        scores_RN[at] += bends_NN[into]
        scores_RN[at] -= bends_NN[out]
        inside_RN[at, into], inside_RN[at, out] = True, False
        until_RN[at, into] = move + 1 + draws.integers(1, stay_in + 1, len(at))
        until_RN[at, out] = move + 1 + draws.integers(1, stay_out + 1, len(at))
        values_R[at] += gains_R[at]
        better_R = values_R > best_R
        if better_R.any():
            best_R[better_R], best_RN[better_R] = values_R[better_R], inside_RN[better_R]
    return best_RN, best_R


def walked(
    model: SwapModel, mask_N: Masks, groups_N: NDArray[np.int64], num_moves: int, draws: np.random.Generator
) -> Masks:
    """The best mask that one search comes by whose exchanges are of the most promising documents.

    Args:
        model: Of exchanges of this mask; brought up to date with every one.
        mask_N: Where the search begins.
        groups_N: Documents are exchanged within a group.
        num_moves: Of the search.
        draws: Of how long documents stay.
    """
    inside_N, until_N, best_N = mask_N.copy(), np.zeros(len(mask_N), np.int32), mask_N
    (stay_in, stay_out), value, best = _stays(mask_N), 0.0, 0.0
    num_outside, num_inside = np.minimum(WALKED, model.promising)
    is_one_group = not groups_N.any()
    for move in range(num_moves):
        free_N = until_N <= move
        outside, inside = np.flatnonzero(free_N & ~inside_N), np.flatnonzero(free_N & inside_N)
        if not is_one_group:
            outside = outside[np.isin(groups_N[outside], groups_N[inside])]
            inside = inside[np.isin(groups_N[inside], groups_N[outside])]
        if not len(outside) or not len(inside):
            break
        if len(outside) > num_outside:
            outside = best_places(model.additions()[outside], outside, num_outside)
        if len(inside) > num_inside:
            inside = best_places(model.removals(inside), inside, num_inside)
        table = model.table(outside, inside)
        if not is_one_group:
            table[groups_N[outside][:, None] != groups_N[inside]] = -np.inf
        row, column = divmod(int(table.argmax()), len(inside))
        if not np.isfinite(table[row, column]):
            break
        into, out = int(outside[row]), int(inside[column])
        model.swap(into, out)
        value += table[row, column]
        inside_N[into], inside_N[out] = True, False
        until_N[into] = move + 1 + draws.integers(1, stay_in + 1)
        until_N[out] = move + 1 + draws.integers(1, stay_out + 1)
        if value > best:
            best, best_N = value, inside_N.copy()
    return best_N


def _stays(mask_N: Masks) -> tuple[int, int]:
    """For how many moves at most documents of such a mask stay in, and out."""
    count = int(mask_N.sum())
    stay_in, stay_out = (
        max(1, min(most, side // 3))
        for most, side in zip(MOST_STAYED, (count, len(mask_N) - count), strict=True)
    )
    return stay_in, stay_out


def kicked(mask_N: Masks, groups_N: NDArray[np.int64], share: float, draws: np.random.Generator) -> Masks:
    """The mask with this share of its documents exchanged at random, within groups."""
    kicked_N = mask_N.copy()
    for group in np.unique(groups_N):
        sides = [np.flatnonzero((groups_N == group) & (mask_N == side)) for side in (True, False)]
        count = min(int(np.ceil(share * len(sides[0]))), *map(len, sides))
        for places, value in zip(sides, (False, True), strict=True):
            kicked_N[draws.permutation(places)[:count]] = value
    return kicked_N
