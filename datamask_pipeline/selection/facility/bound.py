"""An upper bound on every mask of a facility-location objective. Knows no embedding, quality or search.

Shape suffixes: N documents, R references, k list entries, E entries above their list's ceiling.

For any thresholds ``u_y >= 0`` and any mask S of K documents, ``max over x in S of sim(x, y)`` is at most
``u_y + sum over x in S of max(0, sim(x, y) - u_y)``. Hence no mask exceeds

    ``weight * mean(u) + sum of the K largest [linear_i + weight * mean over y of max(0, sim(i, y) - u_y)]``,

the Lagrangian dual of the problem's linear relaxation (Cornuejols, Fisher and Nemhauser 1977). Where ``u_y`` is at
least the ceiling of y's list, the lists hold every non-zero term, so thresholds never go below it.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamask_pipeline.selection.facility.lists import NeighbourLists
from datamask_pipeline.selection.facility.quotas import Quotas

FIRST_STEP, STEP_DECAY, MOMENTUM = 1.0, 0.95, 0.5
"""Subgradient steps, in units of the mean distance between best and second-best similarity."""
FIRST_SOFTNESS, LAST_SOFTNESS = 0.5, 0.01
"""Width of the smoothed top-K, in units of the mean excess of accepted scores over the cut."""
FEWEST_STEPS, STALL_STEPS, STALL_SHARE = 40, 10, 0.002
"""After the fewest steps, stop when the stall steps lowered the bound by less than this share of its distance."""


def dual_bound(
    lists: NeighbourLists,
    linear_N: Tensor,
    weight: float,
    quotas: Quotas,
    start_R: Tensor,
    width_R: Tensor,
    value: float,
    num_steps: int,
) -> tuple[float, Tensor]:
    """The smallest bound found, and its thresholds.

    Args:
        lists: With a ceiling; without one, the floor takes its place and the bound holds for listed entries only.
        linear_N: float64 linear part of each document.
        weight: Of the mean coverage, not negative.
        quotas: The feasible masks.
        start_R: First thresholds; midway between best and second-best similarity is a good start.
        width_R: Distance between these two: the scale of the steps.
        value: Objective of the mask at hand, for the stopping rule only.
        num_steps: Most subgradient steps.

    Returns:
        The bound, in float64; float64 thresholds of shape (R,).
    """
    entries = _Entries(lists)
    low_R, high_R = entries.low_R, entries.high_R
    scale = weight / lists.num_references
    levels_R = start_R.double().clamp(low_R, high_R)
    step, softness = FIRST_STEP * float(width_R.double().mean()), FIRST_SOFTNESS
    best, best_levels_R, history = float("inf"), levels_R, []
    drift_R = torch.zeros_like(levels_R)
    for index in range(num_steps + 1):
        scores_N, above_E = entries.scores(linear_N, scale, levels_R)
        total, cut_N = quotas.top(scores_N)
        bound = weight * float(levels_R.mean()) + total
        if bound < best:
            best, best_levels_R = bound, levels_R
        history.append(best)
        if index >= FEWEST_STEPS and history[-STALL_STEPS - 1] - best < STALL_SHARE * (best - value):
            break
        share_N = _softened(scores_N - cut_N, softness)
        # A threshold rises where more than one accepted document stands above it, and falls where none does.
        crowd_R = entries.crowd(share_N, above_E) - 1
        drift_R = MOMENTUM * drift_R + (1 - MOMENTUM) * crowd_R if index else crowd_R
        levels_R = (levels_R + step * drift_R).clamp(low_R, high_R)
        step *= STEP_DECAY
        softness = max(softness * STEP_DECAY, LAST_SOFTNESS)
    return best, best_levels_R


def _softened(excess_N: Tensor, softness: float) -> Tensor:
    """A smooth step at 0, as wide as `softness` times the mean of what lies above: float64 in [0, 1]."""
    above = excess_N[(excess_N > 0) & excess_N.isfinite()]
    width = float(above.mean()) if len(above) else 0.0
    return torch.sigmoid(excess_N / (softness * width)) if width > 0 else (excess_N >= 0).double()


class _Entries:
    """The list entries that any admissible threshold can leave above it."""

    def __init__(self, lists: NeighbourLists) -> None:
        ceiling_R = lists.floor_R if lists.ceiling_R is None else lists.ceiling_R
        kept_Rk = lists.similarities_Rk > ceiling_R[:, None]
        self.num_documents, self.num_references = lists.num_documents, lists.num_references
        self.documents_E: NDArray[np.int64] = lists.documents_Rk[kept_Rk].numpy()
        self.references_E: NDArray[np.int64] = torch.nonzero(kept_Rk)[:, 0].numpy()
        self.similarities_E = lists.similarities_Rk[kept_Rk].double().numpy()
        self.low_R = ceiling_R.double()
        self.high_R = self.low_R.maximum(lists.similarities_Rk[:, 0].double())

    def scores(self, linear_N: Tensor, scale: float, levels_R: Tensor) -> tuple[Tensor, NDArray[np.float64]]:
        above_E = np.maximum(self.similarities_E - levels_R.numpy()[self.references_E], 0)
        summed_N = np.bincount(self.documents_E, weights=above_E, minlength=self.num_documents)
        return linear_N + scale * torch.from_numpy(summed_N), above_E

    def crowd(self, share_N: Tensor, above_E: NDArray[np.float64]) -> Tensor:
        counted_E = share_N.numpy()[self.documents_E] * (above_E > 0)
        return torch.from_numpy(
            np.bincount(self.references_E, weights=counted_E, minlength=self.num_references)
        )
