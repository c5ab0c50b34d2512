"""Greedy, bound, and greedy again led by the bound. Knows no `Problem`, search or normalisation.

Shape suffixes: N documents, R references, T selected documents.

Plain greedy takes early picks for everything they cover, most of which later picks would cover as well. At the
dual's optimum the threshold of a reference is what it costs to have it covered at all, so that only what a document
offers above it speaks for that document. Greedy that counts references as covered up to a little below their
thresholds comes far closer to the bound than plain greedy does, for the price of another pass over the lists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamask_pipeline.selection.facility.bound import dual_bound
from datamask_pipeline.selection.facility.evaluate import Coverage
from datamask_pipeline.selection.facility.greedy import empty_state, lazy_greedy
from datamask_pipeline.selection.facility.lists import NeighbourLists
from datamask_pipeline.selection.facility.quotas import Quotas

PULLS = (0.1, 0.25)
"""How far below its threshold a reference counts as covered, in mean distances of best and second best."""
MOST_BOUND_STEPS = 120
"""Subgradient steps of the bound; it stops earlier when they no longer help."""

Cover = Callable[[Tensor], Coverage]


@dataclass(frozen=True, kw_only=True)
class CoverageTask:
    """What is maximised: ``sum of linear over S + weight * coverage of S``.

    Attributes:
        linear_N: float64.
        costs_N: float64, what each document takes of its group's limit.
        groups_N: int64.
        limits: What the documents of each group may take.
        cover: The coverage of a mask given as rows.
    """

    linear_N: Tensor
    weight: float
    costs_N: Tensor
    groups_N: Tensor
    limits: tuple[float, ...]
    cover: Cover

    def greedy(self, lists: NeighbourLists, floor_R: NDArray[np.float32] | None = None) -> CoverageMask:
        """Lazy greedy on the lists, then what its mask really covers."""
        state = empty_state(lists, self.linear_N.numpy(), self.weight, floor_R)
        picks, _ = lazy_greedy(state, self.costs_N.numpy(), self.groups_N.numpy(), self.limits)
        selected_T = torch.from_numpy(picks)
        coverage = self.cover(selected_T)
        value = float(self.linear_N[selected_T].sum()) + self.weight * coverage.mean
        return CoverageMask(selected_T=selected_T, coverage=coverage, value=value)


@dataclass(frozen=True, kw_only=True)
class CoverageMask:
    """A mask as rows, with what it covers and its objective."""

    selected_T: Tensor
    coverage: Coverage
    value: float


@dataclass(frozen=True, kw_only=True)
class Certified:
    """The best mask found, the bound computed from the lists, and its thresholds, float64 of shape (R,)."""

    mask: CoverageMask
    bound: float
    levels_R: Tensor


def certified_greedy(task: CoverageTask, lists: NeighbourLists, first: CoverageMask) -> Certified:
    """The bound, started at a first mask, and the best of that mask and of the greedy ones that the bound leads."""
    width_R = first.coverage.best_R - first.coverage.second_R
    bound, levels_R = dual_bound(
        lists,
        task.linear_N,
        task.weight,
        Quotas(groups_N=task.groups_N, limits=tuple(int(limit) for limit in task.limits)),
        start_R=(first.coverage.best_R + first.coverage.second_R) / 2,
        width_R=width_R,
        value=first.value,
        num_steps=MOST_BOUND_STEPS,
    )
    width = float(width_R.double().mean())
    best = first
    for pull in PULLS:
        floor_R = (levels_R - pull * width).clamp(min=0).float().numpy()
        led = task.greedy(lists, floor_R)
        best = led if led.value > best.value else best
    return Certified(mask=best, bound=bound, levels_R=levels_R)
