"""Each document's own marginal at sampled masks. Knows no group of rewards."""

from __future__ import annotations

import torch
from torch import Tensor

from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.estimators.base import Batch, Estimate, GradientEstimator
from datamask_pipeline.selection.estimators.rewards import marginals, rewards
from datamask_pipeline.selection.rollouts import IndependentInclusion


class Counterfactual(GradientEstimator):
    """``dE/dp_i = E[F(mask with i) - F(mask without i)]`` under independent inclusion, from sampled masks.

    Unbiased for metrics with exact marginals, to first order for others. Masks of fewer than two documents, which
    only batches of a handful draw, are drawn again.
    """

    name = "counterfactual"

    def estimate(self, batch: Batch, config: SelectionConfig, draws: torch.Generator) -> Estimate:
        policy = IndependentInclusion(batch.logits_N, batch.budget)
        masks_GN = _of_two(policy.sample(config.num_rollouts, draws).masks_GN)
        while not len(masks_GN):
            masks_GN = _of_two(policy.sample(config.num_rollouts, draws).masks_GN)
        mean_N = torch.zeros_like(policy.probabilities_N)
        for mask_N in masks_GN:
            mean_N += marginals(batch, mask_N) / len(masks_GN)
        return Estimate(gradient_N=policy.logit_gradient(mean_N), rewards_G=rewards(batch, masks_GN))

    def update(self, estimate: Estimate, batch: Batch) -> Tensor:
        return natural_step(estimate, batch)


def _of_two(masks_GN: Tensor) -> Tensor:
    return masks_GN[masks_GN.sum(1) >= 2]


def natural_step(estimate: Estimate, batch: Batch) -> Tensor:
    """The gradient per unit of ``p (1 - p)``, in units of its own deviation: a mirror step on probabilities."""
    policy = IndependentInclusion(batch.logits_N, batch.budget)
    slope_N = policy.probabilities_N * (1 - policy.probabilities_N)
    step_N = estimate.gradient_N / slope_N.clamp(min=1e-12)
    deviation = float(step_N.std())
    return step_N / deviation if deviation > 0 else torch.zeros_like(step_N)


ESTIMATOR = Counterfactual
