"""The paper's estimator: each mask's one reward, relative to its group. Knows no marginals."""

from __future__ import annotations

import torch
from torch import Tensor

from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.estimators.base import Batch, Estimate, GradientEstimator
from datamask_pipeline.selection.estimators.rewards import advantages, rewards
from datamask_pipeline.selection.rollouts import WithoutReplacement


class GroupRelative(GradientEstimator):
    """``(1/G) sum_j A_j d log P(mask_j) / d logits``, masks drawn without replacement.

    Source: DATAMASK (arXiv 2512.24265); group-relative advantages after GRPO (arXiv 2402.03300).
    """

    name = "group_relative"

    def estimate(self, batch: Batch, config: SelectionConfig, draws: torch.Generator) -> Estimate:
        policy = WithoutReplacement(batch.logits_N, batch.budget)
        rollouts = policy.sample(config.num_rollouts, draws)
        rewards_G = rewards(batch, rollouts.masks_GN)
        weights_G = advantages(rewards_G, config.baseline) / len(rewards_G)
        return Estimate(gradient_N=policy.score(rollouts, weights_G, config.log_prob), rewards_G=rewards_G)

    def update(self, estimate: Estimate, batch: Batch) -> Tensor:
        # Dividing every advantage by the group's deviation divides their sum by it.
        deviation = float(estimate.rewards_G.std())
        return estimate.gradient_N / deviation if deviation > 0 else torch.zeros_like(estimate.gradient_N)


ESTIMATOR = GroupRelative
