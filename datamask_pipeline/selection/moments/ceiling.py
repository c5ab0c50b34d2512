"""A bound for correlations, which no concave relaxation bounds. Knows no learner.

K documents and their mean span K - 1 directions. So their correlations, a matrix with as many ones on its diagonal as
dimensions vary, have at most K - 1 eigenvalues, and squares that sum up to the least where these are equal. That holds of
every mask in which no more dimensions are constant than can be: those of which K documents have nearly the same value.

Shape suffixes: N documents, d some of the dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from datamask_pipeline.diversity.correlation import CONSTANT, NOTHING
from datamask_pipeline.diversity.disf import DiSF
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.moments.statistics import Statistics
from datamask_pipeline.selection.objective import MomentObjective

AT_ONCE = 32
"""Dimensions whose values are sorted at a time."""
ROUNDING = 2.0
"""A dimension counts as varying where it varies this many times more than what counts as constant."""


def ceiling(statistics: Statistics, objective: MomentObjective, budget: Budget) -> float | None:
    """The best quality and the least that documents of this number correlate; none for other metrics, in tokens, or beside
    a share of documents.

    Args:
        statistics: Of the block; what is held counts to every mask.
        objective: Whose bound is wanted.
        budget: Of documents.
    """
    function = objective.objective
    if not objective.extends or len(function.terms) > 1 or not isinstance(function.terms[0].metric, DiSF):
        return None
    size = int(budget.num_documents)
    count = size + function.held_count
    best = budget.most(function.quality_N) + function.held_quality
    raw = (
        least_correlated(surely_varying(statistics, size), count - 1) if count <= statistics.rows.dim else 0.0
    )
    return function.combine(best / count, function.diversity({function.terms[0].name: raw}))


def least_correlated(num_varying: int, rank: float) -> float:
    """DiSF's largest value where at least so many dimensions vary in so many directions."""
    return min(0.0, num_varying - num_varying**2 / rank) if 2 * num_varying > rank else 0.0


def surely_varying(statistics: Statistics, size: int) -> int:
    """Dimensions that are constant in no mask of so many documents.

    The least variance that documents of a number can have in one dimension is that of documents next to each other.
    """
    rows_ND, held = statistics.rows.everything(), statistics.held
    total = 0
    for start in range(0, rows_ND.shape[1], AT_ONCE):
        values_Nd = rows_ND[:, start : start + AT_ONCE].double().sort(0).values
        largest_d = values_Nd.square().amax(0)
        variance_d = _windows(values_Nd.square(), size).sub(_windows(values_Nd, size).square()).amin(0)
        if held is not None and held.second_DD is not None:
            variance_d *= size / (size + held.count)
            second_d = held.second_DD.diagonal()[start : start + AT_ONCE] / held.count
            largest_d = torch.maximum(largest_d, second_d.to(largest_d))
        total += int((variance_d > ROUNDING * (CONSTANT * largest_d).clamp(min=NOTHING)).sum())
    return total


def _windows(values_Nd: Tensor, size: int) -> Tensor:
    """The mean of every so many values next to each other."""
    sums_Nd = torch.cat([values_Nd.new_zeros(1, values_Nd.shape[1]), values_Nd.cumsum(0)])
    return (sums_Nd[size:] - sums_Nd[:-size]) / size
