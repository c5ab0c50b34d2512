"""From a relaxed mask to a binary one. Knows no metric and no swap.

Shape suffixes: N documents.
"""

from __future__ import annotations

import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import Moments
from datamask_pipeline.selection.budget import TIE, Budget
from datamask_pipeline.selection.moments.statistics import Statistics
from datamask_pipeline.selection.objective import MomentObjective
from datamask_pipeline.selection.seeds import generator

DRAWS = 16
"""In tokens, where it is by lot how many documents of which lengths a draw has, and what is left to fill; of quadratic
metrics, whose values cost little."""


def round_mask(
    weights_N: Tensor,
    statistics: Statistics,
    objective: MomentObjective,
    budget: Budget,
    moments: Moments | None = None,
) -> tuple[Tensor, float]:
    """The best of a few roundings, measured in float32: the largest weights, and a dependent draw; in tokens, `DRAWS`.

    The largest weights suit a mask that is nearly binary; the draw includes each document with its weight, which
    keeps the moments in expectation where many weights are fractional (equal, on isotropic vectors). Where the weights'
    own moments are given, only rows that rounding changes are read.

    Returns:
        The mask and its objective.
    """
    num_draws = DRAWS if budget.tokens and objective.quadratic else 1
    draws = (draw_mask(weights_N, budget, turn) for turn in range(num_draws))
    candidates = [budget.best(weights_N), *draws]
    values = [
        objective.value(
            mask_N,
            statistics.moments(mask_N) if moments is None else statistics.moved(moments, weights_N, mask_N),
        )
        for mask_N in candidates
    ]
    best = max(range(len(values)), key=values.__getitem__)
    return candidates[best], values[best]


def draw_mask(weights_N: Tensor, budget: Budget, turn: int = 0) -> Tensor:
    """A mask of documents whose inclusion probabilities are the weights: systematic sampling in random order.

    Source: Madow 1949. Each group's budget of documents is met exactly. With tokens the documents drawn are filled in
    first, in random order, and then those of the largest weights.
    """
    draws = generator(budget.seed, "rounding", *([turn] if turn else []))
    if budget.tokens:
        return filled(_systematic(weights_N, max(2, round(float(weights_N.sum()))), draws), weights_N, budget)
    mask_N = torch.zeros(len(weights_N), dtype=torch.bool)
    for group, limit in enumerate(budget.limits):
        members_n = torch.nonzero(budget.groups_N == group).squeeze(1)
        if limit > 0:
            mask_N[members_n] = _systematic(weights_N[members_n], int(limit), draws)
    return mask_N


def filled(mask_N: Tensor, weights_N: Tensor, budget: Budget) -> Tensor:
    """The mask of a budget in tokens, cut where it holds too much and filled up with documents of large weight."""
    draws = generator(budget.seed, "filling")
    order_N = torch.rand(len(weights_N), generator=draws, dtype=torch.float64)
    return budget.fill(torch.where(mask_N, 2 + order_N, weights_N.clamp(0, 1) + TIE * order_N))


def _systematic(weights_n: Tensor, count: int, draws: torch.Generator) -> Tensor:
    order_n = torch.randperm(len(weights_n), generator=draws)
    totals_n = torch.cumsum(weights_n[order_n], 0)
    totals_n *= count / float(totals_n[-1])
    start = float(torch.rand((), generator=draws, dtype=torch.float64))
    points = torch.arange(count, dtype=torch.float64) + start
    chosen = torch.searchsorted(totals_n, points, right=True).clamp_(max=len(order_n) - 1)
    mask_n = torch.zeros(len(weights_n), dtype=torch.bool)
    mask_n[order_n[chosen]] = True
    return mask_n
