"""From a relaxed mask to a binary one. Knows no metric and no swap.

Shape suffixes: N documents.
"""

from __future__ import annotations

import torch
from torch import Tensor

from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.objective import MomentObjective
from datamask_pipeline.selection.seeds import generator
from datamask_pipeline.selection.statistics import Statistics


def round_mask(
    weights_N: Tensor, statistics: Statistics, objective: MomentObjective, budget: Budget
) -> tuple[Tensor, float]:
    """The better of two roundings, measured in float32: the largest weights, and a dependent draw.

    The largest weights suit a mask that is nearly binary; the draw includes each document with its weight, which
    keeps the moments in expectation where many weights are fractional (equal, on isotropic vectors).

    Returns:
        The mask and its objective.
    """
    candidates = [budget.best(weights_N)]
    if not budget.tokens:
        candidates.append(draw_mask(weights_N, budget))
    values = [objective.value(mask_N, statistics.moments(mask_N)) for mask_N in candidates]
    best = max(range(len(values)), key=values.__getitem__)
    return candidates[best], values[best]


def draw_mask(weights_N: Tensor, budget: Budget) -> Tensor:
    """A mask of documents whose inclusion probabilities are the weights: systematic sampling in random order.

    Source: Madow 1949. Each group's budget is met exactly.
    """
    draws = generator(budget.seed, "rounding")
    mask_N = torch.zeros(len(weights_N), dtype=torch.bool)
    for group, limit in enumerate(budget.limits):
        members_n = torch.nonzero(budget.groups_N == group).squeeze(1)
        members_n = members_n[torch.randperm(len(members_n), generator=draws)]
        totals_n = torch.cumsum(weights_N[members_n], 0)
        totals_n *= limit / float(totals_n[-1])
        start = float(torch.rand((), generator=draws, dtype=torch.float64))
        points = torch.arange(int(limit), dtype=torch.float64) + start
        chosen = torch.searchsorted(totals_n, points, right=True).clamp_(max=len(members_n) - 1)
        mask_N[members_n[chosen]] = True
    return mask_N
