"""A bound on facility-location masks that fill a budget in tokens, where mean quality moves with the number of documents.

Shape suffixes: N documents.

With dual variables (see `selection.facility.bound`) a mask covers at most their mean and what its documents offer above
them. Of masks whose mean quality is at least r, the sum of ``quality_i - r`` is not negative, so that any multiple of it
may be added: what is left is a sum over documents, the largest of which `selection.full_masks` finds. Mean qualities are
gone through in intervals, the worst of which is halved until it is narrow.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import torch
from torch import Tensor

from datamask_pipeline.selection.facility.bound import dual_bound
from datamask_pipeline.selection.facility.evaluate import Coverage
from datamask_pipeline.selection.facility.lists import NeighbourLists
from datamask_pipeline.selection.full_masks import FullMasks

NARROW, MOST_HALVED = 2.0**-10, 128
"""Of the range of qualities: narrower intervals are not halved, nor more of them than so many."""
MULTIPLES = 10
"""Multiples tried for an interval: first the reciprocal of a number of documents, then twice or half of it, then between."""
NUM_STEPS = 300
"""Most steps of the dual variables."""


@dataclass(frozen=True, kw_only=True)
class TokenBound:
    """A bound, and what it says of good masks.

    Attributes:
        bound: The bound.
        dual_R: float64, its dual variables.
        linear_N: float64: what quality is worth in each document where the bound is met, beyond a mean.
        width: Mean distance between the best and second-best similarity of the mask that it was led by.
    """

    bound: float
    dual_R: Tensor
    linear_N: Tensor
    width: float


def token_bound(
    lists: NeighbourLists,
    quality_N: Tensor,
    weight: float,
    full: FullMasks,
    selected_T: Tensor,
    covered: Coverage,
) -> TokenBound:
    """A bound on ``mean quality + weight * coverage`` of every full mask.

    Args:
        lists: Exact ones, with a ceiling.
        quality_N: float64, weighted as the objective has it.
        weight: Of the mean coverage.
        full: The masks.
        selected_T: A good mask, as rows: what the dual variables are led by.
        covered: What it covers.
    """
    linear_N = (quality_N - quality_N[selected_T].mean()) / len(selected_T)
    start_R = (covered.best_R + covered.second_R) / 2
    width = float((covered.best_R - covered.second_R).double().mean())
    _, dual_R = dual_bound(lists, linear_N, weight, full, start_R, width, weight * covered.mean, NUM_STEPS)
    reached, linear_N = largest_of_means(_offered(lists, dual_R, weight), quality_N, full)
    bound = weight * float(dual_R.mean()) + reached
    return TokenBound(bound=bound, dual_R=dual_R, linear_N=linear_N, width=width)


def _offered(lists: NeighbourLists, dual_R: Tensor, weight: float) -> Tensor:
    """What each document offers above the dual variables: float64 of shape (N,)."""
    above_Rk = (lists.similarities_Rk.double() - dual_R[:, None]).clamp_(min=0)
    summed_N = torch.zeros(lists.num_documents, dtype=torch.float64)
    summed_N.index_add_(0, lists.documents_Rk.flatten(), above_Rk.flatten())
    return summed_N * (weight / lists.num_references)


def largest_of_means(offered_N: Tensor, quality_N: Tensor, full: FullMasks) -> tuple[float, Tensor]:
    """No full mask has a larger sum of what is offered, and mean quality beside it; what quality is worth there.

    Args:
        offered_N: float64, not negative.
        quality_N: float64, of any sign.
        full: The masks.
    """
    low, high = float(quality_N.min()), full.largest_mean(quality_N)
    narrow = NARROW * (high - low)
    reached, multiple = _within(offered_N, quality_N, full, low, high)
    worst = [(-reached, low, high, multiple)]
    for _ in range(MOST_HALVED):
        if worst[0][2] - worst[0][1] <= narrow:
            break
        bound, low, high, _ = heapq.heappop(worst)
        middle = (low + high) / 2
        for ends in ((low, middle), (middle, high)):
            reached, multiple = _within(offered_N, quality_N, full, *ends)
            # No more is reached in a part than in the whole.
            heapq.heappush(worst, (-min(-bound, reached), *ends, multiple))
    bound, low, _, multiple = worst[0]
    return -bound, (quality_N - low) * multiple


def _within(
    offered_N: Tensor, quality_N: Tensor, full: FullMasks, low: float, high: float
) -> tuple[float, float]:
    """The same of masks whose mean quality lies between two, by the best of a few multiples of what exceeds the lower."""
    above_N = quality_N - low
    best, least, most = (float("inf"), 0.0), 0.0, float("inf")
    multiple = float(full.costs_N.mean()) / full.limit
    for _ in range(MULTIPLES):
        total, mask_N = full.largest(offered_N + multiple * above_N)
        best = min(best, (total + high, multiple))
        # The sum is convex in the multiple; its slope there is what exceeds the lower mean.
        if float(mask_N @ above_N) > 0:
            most = multiple
        else:
            least = multiple
        multiple = (least + most) / 2 if most < float("inf") else 2 * multiple
    return best
