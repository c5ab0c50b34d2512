"""Each document's own marginal at sampled masks. Knows no group of rewards.

Shape suffixes: N documents of a batch, G masks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pydantic

from datamask_pipeline.selection.policy_gradient.estimators.base import Batch, Estimate, GradientEstimator
from datamask_pipeline.settings import Settings

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MOST_DRAWS = 100
"""Times that masks of fewer than two documents are drawn again."""


class CounterfactualConfig(Settings):
    """How many masks are drawn."""

    num_rollouts: int = pydantic.Field(128, ge=1, description="Masks drawn each epoch, G.")


class Counterfactual(GradientEstimator):
    """``dE/dp_i = E[F(mask with i) - F(mask without i)]`` under independent inclusion, from sampled masks.

    Unbiased for metrics with exact marginals, to first order for others. Masks of fewer than two documents, which
    batches of a handful draw, are drawn again. In tokens one long document may be all of a batch's share, and the others as
    good as never beside it: after so many draws in vain the two nearest to being in are.
    """

    name = "counterfactual"
    Config = CounterfactualConfig
    config: CounterfactualConfig

    def estimate(self, batch: Batch, draws: torch.Generator) -> Estimate:
        import torch

        from datamask_pipeline.selection.policy_gradient.rollouts import IndependentInclusion
        from datamask_pipeline.selection.rewards import marginals, rewards

        policy = IndependentInclusion(batch.logits_N, batch.budget)
        for _ in range(MOST_DRAWS):
            drawn = policy.sample(self.config.num_rollouts, draws)
            masks_GN = drawn.masks_GN[drawn.masks_GN.sum(1) >= 2]
            if len(masks_GN):
                break
        else:
            nearest_G2 = torch.topk(policy.probabilities_N - drawn.keys_GN, 2, dim=1).indices
            masks_GN = drawn.masks_GN.scatter(1, nearest_G2, True)
        mean_N = torch.zeros_like(policy.probabilities_N)
        for mask_N in masks_GN:
            mean_N += marginals(batch, mask_N) / len(masks_GN)
        return Estimate(gradient_N=policy.logit_gradient(mean_N), rewards_G=rewards(batch, masks_GN))

    def update(self, estimate: Estimate, batch: Batch) -> Tensor:
        from datamask_pipeline.selection.policy_gradient.rollouts import IndependentInclusion

        return IndependentInclusion(batch.logits_N, batch.budget).natural_step(estimate.gradient_N)


ESTIMATOR = Counterfactual
