"""Masks along a graph whose documents come and go. Knows no relaxation, policy or report.

Shape suffixes: N documents, n of a group or neighbours of one, E edges, p exchanges.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.graph.objective import GraphObjective, Mask, Numbers

LEAST_GAIN = 1e-12
"""Of an exchange, as a share of the largest marginal."""


class _MovingMask:
    """A mask, and what each document adds to it or takes from it where it leaves.

    What was looked up holds for a document as long as it is not stale: neither it nor a neighbour has moved since.
    """

    def __init__(self, objective: GraphObjective, mask_N: Mask) -> None:
        taken_NN = objective.taken_NN
        self._starts_N, self._places, self._taken = taken_NN.indptr.tolist(), taken_NN.indices, taken_NN.data
        self.mask_N, self.marginals_N = mask_N.copy(), objective.marginals(mask_N)
        self.stale_N = np.zeros(len(mask_N), bool)

    def move(self, row: int) -> None:
        """In where it was out, and out where it was in."""
        sign = 1.0 if self.mask_N[row] else -1.0
        span = slice(self._starts_N[row], self._starts_N[row + 1])
        places_n = self._places[span]
        self.mask_N[row] = not self.mask_N[row]
        self.marginals_N[places_n] += sign * self._taken[span]
        self.stale_N[places_n] = True
        self.stale_N[row] = True


def filled(objective: GraphObjective, budget: Budget, mask_N: Mask) -> Mask:
    """The mask without those that add least, or with those that add most, until each group has its number."""
    moving, groups_N = _MovingMask(objective, mask_N), budget.groups_N.numpy()
    for group, limit in enumerate(budget.limits):
        rows_n = np.flatnonzero(groups_N == group)
        while surplus := int(moving.mask_N[rows_n].sum()) - int(limit):
            moving.stale_N[:] = False
            movable_n = rows_n[moving.mask_N[rows_n] == (surplus > 0)]
            order_n = np.argsort(np.sign(surplus) * moving.marginals_N[movable_n], kind="stable")
            left = abs(surplus)
            for row in movable_n[order_n].tolist():
                if left and not moving.stale_N[row]:
                    moving.move(row)
                    left -= 1
    return moving.mask_N


def exchanged(objective: GraphObjective, budget: Budget, mask_N: Mask) -> Mask:
    """The mask after exchanges of two documents of a group, the best first, until none raises the objective.

    What exchanges gain is looked up for all of them at once; of those, documents that are stale wait for the next look.
    """
    graph, groups_N = objective.graph, budget.groups_N.numpy()
    members = [np.flatnonzero(groups_N == group) for group in range(len(budget.limits))]
    moving = _MovingMask(objective, mask_N)
    # Where both ends are of one group, an exchange along an edge is worth that edge more.
    same_E = groups_N[graph.left_E] == groups_N[graph.right_E]
    left_E, right_E = graph.left_E[same_E], graph.right_E[same_E]
    taken_E = objective.weight * graph.similarity_E[same_E]
    least = LEAST_GAIN * float(np.abs(moving.marginals_N).max(initial=0.0))
    while True:
        found = [_gaining_apart(moving.marginals_N, moving.mask_N, rows_n, least) for rows_n in members]
        found.append(_gaining_along(moving.marginals_N, moving.mask_N, left_E, right_E, taken_E, least))
        gains_p, out_p, into_p = map(np.concatenate, zip(*found, strict=True))
        if len(gains_p) == 0:
            return moving.mask_N
        moving.stale_N[:] = False
        for place in np.argsort(-gains_p, kind="stable").tolist():
            out, into = int(out_p[place]), int(into_p[place])
            if not (moving.stale_N[out] or moving.stale_N[into]):
                moving.move(out)
                moving.move(into)


def kicked(budget: Budget, mask_N: Mask, count: int, draws: np.random.Generator) -> Mask:
    """The mask with so many drawn documents exchanged for drawn ones of their groups."""
    groups_N, kicked_N = budget.groups_N.numpy(), mask_N.copy()
    for out in draws.permutation(np.flatnonzero(mask_N))[:count].tolist():
        others = np.flatnonzero((groups_N == groups_N[out]) & ~kicked_N & ~mask_N)
        if len(others):
            kicked_N[out], kicked_N[draws.choice(others)] = False, True
    return kicked_N


Exchanges = tuple[Numbers, NDArray[np.int64], NDArray[np.int64]]
"""What each gains, or at least that; who goes; who comes."""


def _gaining_apart(marginals_N: Numbers, mask_N: Mask, rows_n: NDArray[np.int64], least: float) -> Exchanges:
    """Those of a group that gain as if no two shared an edge: the document that adds least for the best other, and so on."""
    inside_n, outside_n = rows_n[mask_N[rows_n]], rows_n[~mask_N[rows_n]]
    most = marginals_N[outside_n].max(initial=-np.inf)
    out_p = inside_n[marginals_N[inside_n] < most - least]
    lowest = marginals_N[out_p].min(initial=np.inf)
    into_p = outside_n[marginals_N[outside_n] > lowest + least]
    out_p = out_p[np.argsort(marginals_N[out_p], kind="stable")][: len(into_p)]
    into_p = into_p[np.argsort(-marginals_N[into_p], kind="stable")][: len(out_p)]
    gains_p = marginals_N[into_p] - marginals_N[out_p]
    gain_p = gains_p > least
    return gains_p[gain_p], out_p[gain_p], into_p[gain_p]


def _gaining_along(
    marginals_N: Numbers,
    mask_N: Mask,
    left_E: NDArray[np.int64],
    right_E: NDArray[np.int64],
    taken_E: Numbers,
    least: float,
) -> Exchanges:
    """Those along an edge that gain: who comes has one selected neighbour less."""
    into_left_E = ~mask_N[left_E]
    into_E, out_E = np.where(into_left_E, left_E, right_E), np.where(into_left_E, right_E, left_E)
    gains_E = marginals_N[into_E] - marginals_N[out_E] + taken_E
    gain_E = (mask_N[left_E] != mask_N[right_E]) & (gains_E > least)
    return gains_E[gain_E], out_E[gain_E], into_E[gain_E]
