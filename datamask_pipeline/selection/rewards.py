"""Rewards, baselines and marginals of masks of a batch. Knows no distribution and no logits.

Shape suffixes: N documents of a batch, G masks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from datamask_pipeline.diversity.base import checked_marginals, checked_values
from datamask_pipeline.diversity.moments import MomentMetric, Moments, moments_of
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.policy_gradient.estimators.base import Batch


def rewards(batch: Batch, masks_GN: Tensor) -> Tensor:
    """The objective of each mask, float64 of shape (G,).

    Raises:
        ConfigurationError: a metric returned NaN or infinity, or not one value a mask.
    """
    function = batch.objective
    weights_GN = masks_GN.to(torch.float64)
    total_G = function.lamb * (weights_GN @ function.quality_N + function.held_quality)
    total_G /= weights_GN.sum(1) + function.held_count
    for term in function.terms:
        if batch.held is not None and isinstance(term.metric, MomentMetric):
            values_G = term.metric.values_beside(batch.held, batch.embeddings_ND, masks_GN)
        else:
            values_G = checked_values(term.metric, batch.embeddings_ND, masks_GN)
        total_G += (1 - function.lamb) * (term.scale * values_G + term.offset)
    return total_G


def advantages(rewards_G: Tensor, baseline: Literal["group_mean", "leave_one_out"]) -> Tensor:
    """Rewards less their baseline; both sum to zero over the group.

    The mean of the group holds the mask's own reward, which shrinks the estimate to (G-1)/G of the truth; the
    mean of the others does not.
    """
    centred_G = rewards_G - rewards_G.mean()
    if baseline == "leave_one_out":
        centred_G = centred_G * (len(rewards_G) / (len(rewards_G) - 1))
    return centred_G


def marginals(batch: Batch, weights_N: Tensor, count: float | None = None) -> Tensor:
    """Each document's marginal in the objective at a mask: float64 of shape (N,).

    Args:
        batch: The batch.
        weights_N: A bool mask; probabilities in float64 where every metric is quadratic.
        count: Documents that means divide by, beside those held; those of the budget where none is given.

    Raises:
        ConfigurationError: a metric offers no marginals.
    """
    function = batch.objective
    count = (batch.budget.num_documents if count is None else count) + function.held_count
    total_N = function.lamb * function.quality_N / count
    for term in function.terms:
        if isinstance(term.metric, MomentMetric):
            part_N = _moment_marginals(batch, term.metric, weights_N, count)
        else:
            offered = checked_marginals(term.metric, batch.embeddings_ND, weights_N)
            if offered is None:
                raise ConfigurationError(
                    f"diversity metric {term.name!r} offers no marginals; use estimator group_relative"
                )
            part_N = offered
        total_N = total_N + (1 - function.lamb) * term.scale * part_N
    return total_N


def _moment_marginals(batch: Batch, metric: MomentMetric, weights_N: Tensor, count: float) -> Tensor:
    found = _moments(batch, metric, weights_N)
    # The policy's masks hold the budget in expectation: that is what a metric divides by where it can.
    at_budget = metric.exact_marginals and not metric.moving_count
    moments = replace(found, count=count) if at_budget else found
    weights_N = weights_N.to(device=batch.embeddings_ND.device, dtype=torch.float64)
    return metric.marginals_at(moments)(batch.embeddings_ND, weights_N).cpu()


def _moments(batch: Batch, metric: MomentMetric, weights_N: Tensor) -> Moments:
    """Of a mask and of what is held."""
    own = moments_of(batch.embeddings_ND, weights_N, metric.needs_second)
    return own if batch.held is None else own.plus(batch.held)
