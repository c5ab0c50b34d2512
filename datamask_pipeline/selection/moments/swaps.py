"""Improving a binary mask by swaps: one document in, one out. Knows no relaxation, rounding or policy.

Shape suffixes: N documents, T candidates.

Each round takes the documents nearest the threshold on both sides, swaps pairs one after the other on the
metrics' own models of what that does (``diversity.swap_models``), and keeps the longest prefix of swaps that
raises the objective as measured in float32: a round never makes the mask worse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import Moments, moments_of
from datamask_pipeline.selection.budget import TIE, Budget
from datamask_pipeline.selection.moments.pairs import LEAST_GAIN, Search, TokensLeft
from datamask_pipeline.selection.moments.statistics import Statistics
from datamask_pipeline.selection.moments.values import value_of
from datamask_pipeline.selection.objective import MomentObjective
from datamask_pipeline.selection.seeds import generator

FEWEST, MOST = 256, 1024
"""Documents on each side of the threshold whose interactions a round models; rounds grow from one to the other."""
BAND = 4096
"""A round scores only this many on each side; the band is refreshed when it runs dry."""
GOAL_SHARE = 0.1
"""Learners end swaps at this share of the gap that ends the ascent: they are the cheaper way to the same objective."""


@dataclass(kw_only=True)
class SwapResult:
    """A mask, its float32 moments and objective, and how many documents were swapped in."""

    mask_N: Tensor
    moments: Moments
    value: float
    num_swaps: int


def swap(
    mask_N: Tensor,
    statistics: Statistics,
    objective: MomentObjective,
    budget: Budget,
    num_rounds: int,
    dtype: torch.dtype,
    goal: float = math.inf,
    scores_N: Tensor | None = None,
    moments: Moments | None = None,
) -> SwapResult:
    """Swap documents of equal group, within a budget of tokens, while the objective rises.

    Args:
        mask_N: bool, within the budget.
        statistics: The block's map-reduce.
        objective: What rises.
        budget: Groups and limits.
        num_rounds: Most rounds.
        dtype: Arithmetic of the scores that say who is near the threshold; all else is float32.
        goal: Stop at this objective: a bound says that more is hardly worth the time.
        scores_N: The gradient near this mask, where it is known: the first band then needs no pass over the block.
        moments: Those of the mask, where they are known.
    """
    moments = statistics.moments(mask_N) if moments is None else moments
    result = SwapResult(
        mask_N=mask_N.clone(),
        moments=moments,
        value=value_of(objective, statistics, mask_N, moments),
        num_swaps=0,
    )
    draws = generator(budget.seed, "swaps")
    band_n: Tensor | None = None
    fresh, size = scores_N is None, FEWEST
    for _ in range(num_rounds):
        if result.value >= goal:
            break
        form = objective.form(result.moments)
        if band_n is None:
            if scores_N is None:
                scores_N = objective.linear_N(moments.count) + statistics.scores(form, dtype, coarse=True)
            band_n, scores_N = _nearest(scores_N, result.mask_N, budget, BAND, draws), None
        scores_n = objective.linear_N(moments.count)[band_n] + statistics.scores(form, index_n=band_n)
        if _round(result, band_n, scores_n, statistics, objective, budget, size, draws):
            fresh = False
        elif size < MOST:
            size *= 2
        elif fresh:
            break
        else:
            band_n, fresh = None, True
    return result


def _nearest(
    scores_n: Tensor,
    mask_n: Tensor,
    budget: Budget,
    count: int,
    draws: torch.Generator,
    within: Tensor | None = None,
) -> Tensor:
    """The `count` worst selected and best unselected documents of each group, as an ascending index."""
    ties_n = torch.rand(len(scores_n), generator=draws, dtype=torch.float64)
    ties_n *= TIE * scores_n.abs().median()
    groups_n = budget.groups_N if within is None else budget.groups_N[within]
    share = max(1, count // len(budget.limits))
    parts = []
    for group in range(len(budget.limits)):
        for inside, sign in ((True, -1.0), (False, 1.0)):
            members = torch.nonzero((groups_n == group) & (mask_n == inside)).squeeze(1)
            top = torch.topk(sign * scores_n[members] + ties_n[members], min(share, len(members))).indices
            parts.append(members[top])
    return torch.sort(torch.cat(parts)).values


def _round(
    result: SwapResult,
    band_n: Tensor,
    scores_n: Tensor,
    statistics: Statistics,
    objective: MomentObjective,
    budget: Budget,
    size: int,
    draws: torch.Generator,
) -> bool:
    """One round in place; false when nothing was gained."""
    near = _nearest(scores_n, result.mask_N[band_n], budget, size, draws, within=band_n)
    # In random order: of equal swaps the first one is made.
    index_T = band_n[near][torch.randperm(len(near), generator=draws)]
    rows_TD = statistics.rows.take(index_T)
    linear_T = objective.linear_N(result.moments.count)[index_T]
    search = Search(
        objective.swap_model(result.moments, linear_T, rows_TD),
        result.mask_N[index_T].numpy(),
        budget.groups_N[index_T].numpy(),
        TokensLeft(budget, result.mask_N, index_T) if budget.tokens else None,
    )
    return _kept(result, index_T, rows_TD, search.promising(), statistics, objective)


def _kept(
    result: SwapResult,
    index_T: Tensor,
    rows_TD: Tensor,
    pairs: list[tuple[int, int]],
    statistics: Statistics,
    objective: MomentObjective,
) -> bool:
    """The longest of the halved prefixes of these swaps that gains, made in place; false where none does."""
    while pairs:
        change_T = torch.zeros(len(index_T), dtype=torch.float64)
        out, into = (torch.tensor(side) for side in zip(*pairs, strict=True))
        # A document may leave, return and leave again within a round: every move counts, not only its last.
        moved = torch.ones(len(pairs), dtype=torch.float64)
        change_T.index_add_(0, out, -moved).index_add_(0, into, moved)
        moments = result.moments.plus(moments_of(rows_TD, change_T, statistics.needs_second))
        mask_N = result.mask_N.clone()
        mask_N[index_T] = result.mask_N[index_T].to(torch.float64).add(change_T) > 0.5
        value = value_of(objective, statistics, mask_N, moments)
        if value > result.value + LEAST_GAIN:
            result.mask_N, result.moments, result.value = mask_N, moments, value
            result.num_swaps += int(change_T.abs().sum()) // 2
            return True
        pairs = pairs[: len(pairs) // 2]
    return False
