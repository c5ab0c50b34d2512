"""An upper bound on every mask of a facility-location objective. Knows no embedding, quality or search.

Shape suffixes: N documents, R references, E list entries above their list's ceiling, A entries near the dual variables.

For any dual variables ``u_y >= 0`` and any mask S of K documents, ``max over x in S of sim(x, y)`` is at most
``u_y + sum over x in S of max(0, sim(x, y) - u_y)``. Hence no mask exceeds

    ``weight * mean(u) + sum of the K largest [linear_i + weight * mean over y of max(0, sim(i, y) - u_y)]``,

the Lagrangian dual of the problem's linear relaxation (Cornuejols, Fisher and Nemhauser 1977). Where ``u_y`` is at
least the ceiling of y's list, the lists hold every non-zero term, so dual variables never go below it.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamask_pipeline.selection.facility.lists import NeighbourLists
from datamask_pipeline.selection.facility.quotas import Quotas
from datamask_pipeline.selection.full_masks import FullMasks

MOMENTUM = 0.7
FIRST_SOFTNESS, LAST_SOFTNESS, SOFTNESS_DECAY = 0.3, 0.01, 0.97
"""Width of the smoothed top-K, in units of the mean excess of accepted scores over the cut."""
FIRST_FACTOR, SMALLEST_FACTOR, LARGEST_FACTOR = 0.3, 0.001, 1.0
"""Of Polyak's step: a whole one, towards a value that no mask exceeds by little, leaves a good start behind."""
WINDOW, WINDOW_SHARE, SHRINK, GROW = 5, 0.02, 0.6, 1.5
"""After so many steps the next ones shrink where they took less than this share off the bound's distance from the
value, and grow where they took more."""
NEAR = 0.5
"""How far below a dual variable entries are at hand at first, in mean distances of best and second-best similarity."""


def dual_bound(
    lists: NeighbourLists,
    linear_N: Tensor,
    weight: float,
    budget: Quotas | FullMasks,
    start_R: Tensor,
    width: float,
    value: float,
    num_steps: int,
) -> tuple[float, Tensor]:
    """The smallest bound found by Polyak's steps (1969) towards the value of a mask, and its dual variables.

    Args:
        lists: With a ceiling; without one, the floor takes its place and the bound holds for listed entries only.
        linear_N: float64 linear part of each document.
        weight: Of the mean coverage, not negative.
        budget: The feasible masks.
        start_R: First dual variables; midway between best and second-best similarity is a good start.
        width: Mean distance between these two; no result but the time depends on it.
        value: Objective of a mask: what the steps aim at. The bound holds whatever it is.
        num_steps: Most steps.

    Returns:
        The bound, in float64; float64 dual variables of shape (R,).
    """
    entries = Entries(lists, slack=NEAR * width)
    scale = weight / lists.num_references
    dual_R = start_R.double().clamp(entries.low_R, entries.high_R)
    best, best_dual_R = float("inf"), dual_R
    softness, steps = FIRST_SOFTNESS, PolyakSteps(entries, scale, value)
    for _ in range(num_steps + 1):
        scores_N, above_A = entries.scores(linear_N, scale, dual_R)
        total, cut_N = budget.top(scores_N)
        bound = weight * float(dual_R.mean()) + total
        if bound < best:
            best, best_dual_R = bound, dual_R
        if not steps.help_on(best):
            break
        share_N = _softened(scores_N - cut_N, softness)
        following_R = steps.after(dual_R, entries.crowd(share_N, above_A), bound)
        if following_R is None:
            break
        dual_R = following_R
        softness = max(softness * SOFTNESS_DECAY, LAST_SOFTNESS)
    return best, best_dual_R


class PolyakSteps:
    """Steps of dual variables towards a value, each with some of the last one's way.

    Args:
        entries: What the dual variables are of.
        scale: Weight of one reference's coverage.
        value: Objective of a mask: what the steps aim at.
        factor: Of the first of Polyak's steps.
    """

    def __init__(self, entries: Entries, scale: float, value: float, factor: float = FIRST_FACTOR) -> None:
        self._entries, self._scale, self._value = entries, scale, value
        self._factor, self._before, self._taken = factor, float("inf"), 0
        self._drift_R: Tensor | None = None

    def help_on(self, best: float) -> bool:
        """Whether further steps may find less than the smallest bound so far; asked once for each step."""
        self._taken += 1
        if self._taken % WINDOW == 0:
            helped = self._before - best > WINDOW_SHARE * (best - self._value)
            self._factor = min(GROW * self._factor, LARGEST_FACTOR) if helped else SHRINK * self._factor
            self._before = best
        return self._factor >= SMALLEST_FACTOR and best > self._value

    def after(self, dual_R: Tensor, crowd_R: Tensor, height: float) -> Tensor | None:
        """The next dual variables; none where there is no way down.

        Args:
            dual_R: Where the step begins.
            crowd_R: Accepted documents above each.
            height: What there is to come down from: the bound there, or less.
        """
        low_R, high_R = self._entries.low_R, self._entries.high_R
        # A dual variable rises where more than one accepted document stands above it, and falls where none does.
        uphill_R = crowd_R - 1
        stuck_R = ((dual_R <= low_R) & (uphill_R < 0)) | ((dual_R >= high_R) & (uphill_R > 0))
        uphill_R = uphill_R.masked_fill(stuck_R, 0.0)
        if self._drift_R is not None:
            uphill_R = MOMENTUM * self._drift_R + (1 - MOMENTUM) * uphill_R
        self._drift_R = uphill_R
        squared = float(uphill_R @ uphill_R)
        if squared == 0 or self._scale == 0:
            return None
        length = self._factor * (height - self._value) / (self._scale * squared)
        return (dual_R + length * uphill_R).clamp(low_R, high_R)


def _softened(excess_N: Tensor, softness: float) -> Tensor:
    """A smooth step at 0, as wide as `softness` times the mean of what lies above: float64 in [0, 1]."""
    above = excess_N[(excess_N > 0) & excess_N.isfinite()]
    width = float(above.mean()) if len(above) else 0.0
    return torch.sigmoid(excess_N / (softness * width)) if width > 0 else (excess_N >= 0).double()


class Entries:
    """The list entries that admissible dual variables can leave above them; at hand are those near the last ones."""

    def __init__(self, lists: NeighbourLists, slack: float) -> None:
        self.low_R = lists.lowest_R.double()
        self.high_R = self.low_R.maximum(lists.similarities_Rk[:, 0].double())
        self._lists = lists
        self._slack_R = torch.full_like(self.low_R, slack / 2)
        self._reach_R = torch.full_like(self.low_R, torch.inf)

    def scores(self, linear_N: Tensor, scale: float, dual_R: Tensor) -> tuple[Tensor, NDArray[np.float64]]:
        """What each document offers above the dual variables, its linear part included; each entry's part of it."""
        if bool((dual_R < self._reach_R).any()):
            self._take_near(dual_R)
        above_A = np.maximum(self._similarities_A - dual_R.numpy()[self._references_A], 0)
        summed_N = np.bincount(self._documents_A, weights=above_A, minlength=self._lists.num_documents)
        return linear_N + scale * torch.from_numpy(summed_N), above_A

    def crowd(self, share_N: Tensor, above_A: NDArray[np.float64]) -> Tensor:
        """The accepted documents above each reference's dual variable, by share."""
        counted_A = share_N.numpy()[self._documents_A] * (above_A > 0)
        return torch.from_numpy(
            np.bincount(self._references_A, weights=counted_A, minlength=self._lists.num_references)
        )

    def _take_near(self, dual_R: Tensor) -> None:
        # Twice as far where a dual variable fell below what is at hand: few searches, whatever its way.
        self._slack_R = self._slack_R.where(dual_R >= self._reach_R, 2 * self._slack_R)
        self._reach_R = self.low_R.maximum(dual_R - self._slack_R)
        similarities_Rk = self._lists.similarities_Rk.double()
        near_Rk = similarities_Rk > self._reach_R[:, None]
        self._documents_A: NDArray[np.int64] = self._lists.documents_Rk[near_Rk].numpy()
        self._references_A: NDArray[np.int64] = torch.nonzero(near_Rk)[:, 0].numpy()
        self._similarities_A: NDArray[np.float64] = similarities_Rk[near_Rk].numpy()
