"""Improving a binary mask by swaps: one document in, one out. Knows no relaxation, rounding or policy.

Shape suffixes: N documents, T candidates.

Each round takes the documents nearest the threshold on both sides, swaps pairs one after the other on the
metrics' own models of what that does (``diversity.swap_models``), and keeps the longest prefix of swaps that
raises the objective as measured in float32: a round never makes the mask worse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamask_pipeline.diversity.moments import Moments, moments_of
from datamask_pipeline.diversity.swap_models import SwapModel
from datamask_pipeline.selection.budget import TIE, Budget
from datamask_pipeline.selection.moments.statistics import Statistics
from datamask_pipeline.selection.objective import MomentObjective
from datamask_pipeline.selection.seeds import generator

FEWEST, MOST = 256, 1024
"""Documents on each side of the threshold whose interactions a round models; rounds grow from one to the other."""
BAND = 4096
"""A round scores only this many on each side; the band is refreshed when it runs dry."""
LEAST_GAIN = 1e-12
PROMISING = 32
"""Unselected documents whose swap with every selected candidate is modelled, at each swap."""


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
    """
    moments = statistics.moments(mask_N)
    result = SwapResult(
        mask_N=mask_N.clone(), moments=moments, value=objective.value(mask_N, moments), num_swaps=0
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
                scores_N = objective.linear_N(moments.count) + statistics.scores(form, dtype)
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
    pairs = _pairs(
        objective.swap_model(result.moments, linear_T, rows_TD),
        result.mask_N[index_T].numpy(),
        budget.groups_N[index_T].numpy(),
        _TokensLeft(budget, result.mask_N, index_T) if budget.tokens else None,
    )
    while pairs:
        change_T = torch.zeros(len(index_T), dtype=torch.float64)
        out, into = (torch.tensor(side) for side in zip(*pairs, strict=True))
        # A document may leave, return and leave again within a round: every move counts, not only its last.
        moved = torch.ones(len(pairs), dtype=torch.float64)
        change_T.index_add_(0, out, -moved).index_add_(0, into, moved)
        moments = result.moments.plus(moments_of(rows_TD, change_T, statistics.needs_second))
        mask_N = result.mask_N.clone()
        mask_N[index_T] = result.mask_N[index_T].to(torch.float64).add(change_T) > 0.5
        value = objective.value(mask_N, moments)
        if value > result.value + LEAST_GAIN:
            result.mask_N, result.moments, result.value = mask_N, moments, value
            result.num_swaps += int(change_T.abs().sum()) // 2
            return True
        pairs = pairs[: len(pairs) // 2]
    return False


class _TokensLeft:
    """What a budget of tokens has left, and what the candidates take of it."""

    def __init__(self, budget: Budget, mask_N: Tensor, index_T: Tensor) -> None:
        self.left = budget.limits[0] - float(budget.costs_N[mask_N].sum())
        self.costs_T = budget.costs_N[index_T].numpy()

    def fits(self, outside: NDArray[np.int64], inside: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which swaps stay within the budget."""
        fitting: NDArray[np.bool_] = self.costs_T[outside][:, None] - self.costs_T[inside] <= self.left
        return fitting

    def swap(self, into: int, out: int) -> None:
        """Take note of one."""
        self.left -= float(self.costs_T[into] - self.costs_T[out])


def _pairs(
    model: SwapModel,
    selected_T: NDArray[np.bool_],
    groups_T: NDArray[np.int64],
    tokens: _TokensLeft | None,
) -> list[tuple[int, int]]:
    """Pairs (out, in) in the order found, each the best of its group on the model left by those before it."""
    pairs: list[tuple[int, int]] = []
    selected_T = selected_T.copy()
    for group in np.unique(groups_T):
        members = groups_T == group
        for _ in range(int(members.sum())):
            outside, inside = np.flatnonzero(members & ~selected_T), np.flatnonzero(members & selected_T)
            if not len(outside) or not len(inside):
                break
            into, out, gain = _best_pair(model, outside, inside, tokens)
            if not gain > LEAST_GAIN:
                break
            if tokens is not None:
                tokens.swap(into, out)
            pairs.append((out, into))
            selected_T[into], selected_T[out] = True, False
            model.swap(into, out)
            if not model.follows:
                members[[into, out]] = False  # what follows is unknown: each document moves once
    return pairs


def _best_pair(
    model: SwapModel, outside: NDArray[np.int64], inside: NDArray[np.int64], tokens: _TokensLeft | None
) -> tuple[int, int, float]:
    """The swap with the largest change: all of the selected against the most promising outside."""
    if len(outside) > PROMISING:
        outside = outside[np.argpartition(-model.additions()[outside], PROMISING)[:PROMISING]]
    table = model.table(outside, inside)
    if tokens is not None:
        table = np.where(tokens.fits(outside, inside), table, -np.inf)
    row, column = divmod(int(table.argmax()), len(inside))
    return int(outside[row]), int(inside[column]), float(table[row, column])
