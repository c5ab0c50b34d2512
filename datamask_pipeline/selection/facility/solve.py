"""Greedy, bound, greedy again led by the bound, and swaps. Knows no `Problem`, search or normalisation.

Shape suffixes: N documents, R references, T selected documents.

Plain greedy takes early picks for everything they cover, most of which later picks would cover as well. At the
dual's optimum the dual variable of a reference is what it costs to have it covered at all, so that only what a
document offers above it speaks for that document. Greedy that counts references as covered up to a little below their
dual variables comes far closer to the bound than plain greedy does, for the price of another pass over the lists.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from datamask_pipeline.selection.facility.bound import dual_bound
from datamask_pipeline.selection.facility.evaluate import Coverage, listed_coverage, reached_outside
from datamask_pipeline.selection.facility.greedy import empty_state, lazy_greedy
from datamask_pipeline.selection.facility.lists import NeighbourLists
from datamask_pipeline.selection.facility.quotas import Quotas
from datamask_pipeline.selection.facility.swaps import swap_on_lists

PULLS = (0.1, 0.25)
"""How far below its dual variable a reference counts as covered, in mean distances of best and second best."""
MOST_BOUND_STEPS = 300
"""Steps of the bound; it stops earlier when they no longer help."""

Cover = Callable[[Tensor], Coverage]
Improve = Callable[[list[Tensor], float], Tensor]
"""The best mask that some others, given as rows, lead to; it need not look further where it reaches the bound."""


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

    def picks(self, lists: NeighbourLists, floor_R: Tensor | None = None) -> Tensor:
        """Lazy greedy's rows on the lists, in order; see `empty_state` for the floor."""
        state = empty_state(
            lists, self.linear_N.numpy(), self.weight, None if floor_R is None else floor_R.numpy()
        )
        picks_P, _ = lazy_greedy(state, self.costs_N.numpy(), self.groups_N.numpy(), self.limits)
        return torch.from_numpy(picks_P)

    def value(self, selected_T: Tensor, coverage: Coverage) -> float:
        """The objective of a mask that covers so much."""
        return float(self.linear_N[selected_T].sum()) + self.weight * coverage.mean

    def measured(self, selected_T: Tensor) -> CoverageMask:
        """The mask with what it really covers."""
        coverage = self.cover(selected_T)
        return CoverageMask(selected_T=selected_T, coverage=coverage, value=self.value(selected_T, coverage))


@dataclass(frozen=True, kw_only=True)
class CoverageMask:
    """A mask as rows, with what it covers and its objective."""

    selected_T: Tensor
    coverage: Coverage
    value: float


@dataclass(frozen=True, kw_only=True)
class Certified:
    """The best mask found, the bound computed from the lists, and its dual variables, float64 of shape (R,)."""

    mask: CoverageMask
    num_swaps: int
    bound: float
    dual_R: Tensor


def certified_mask(
    task: CoverageTask, lists: NeighbourLists, first: CoverageMask, improve: Improve | None = None
) -> Certified:
    """The bound, started at a first mask, and the best of that mask and the greedy ones the bound leads, after swaps.

    Args:
        task: What is maximised.
        lists: Of its documents.
        first: A mask.
        improve: What improves the masks in place of swaps on lists.
    """
    width_R = first.coverage.best_R - first.coverage.second_R
    width = float(width_R.double().mean())
    bound, dual_R = dual_bound(
        lists,
        task.linear_N,
        task.weight,
        Quotas(groups_N=task.groups_N, limits=tuple(int(limit) for limit in task.limits)),
        start_R=(first.coverage.best_R + first.coverage.second_R) / 2,
        width=width,
        value=first.value,
        num_steps=MOST_BOUND_STEPS,
    )
    outside_R = reached_outside(lists, first.coverage)
    masks = [first.selected_T]
    for pull in PULLS:
        floor_R = (dual_R - pull * width).clamp(min=0).float()
        # Where the list allows no lower dual variable, what is reached without the list says more.
        masks.append(task.picks(lists, floor_R.minimum(outside_R.where(dual_R <= lists.lowest_R, floor_R))))
    if improve is not None:
        found = task.measured(improve(masks, bound))
        return Certified(mask=max(first, found, key=_value), num_swaps=0, bound=bound, dual_R=dual_R)
    best_T = max(
        masks, key=lambda selected_T: task.value(selected_T, listed_coverage(lists, selected_T, outside_R))
    )
    swapped = swap_on_lists(lists, task.linear_N, task.weight, task.groups_N, outside_R, best_T)
    found = task.measured(swapped.selected_T)
    if found.value < first.value:
        return Certified(mask=first, num_swaps=0, bound=bound, dual_R=dual_R)
    return Certified(mask=found, num_swaps=swapped.num_swaps, bound=bound, dual_R=dual_R)


def _value(mask: CoverageMask) -> float:
    return mask.value
