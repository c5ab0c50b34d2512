"""The paper's estimator: each mask's one reward, relative to its group. Knows no marginals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pydantic

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.policy_gradient.estimators.base import Batch, Estimate, GradientEstimator
from datamask_pipeline.settings import Settings

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from datamask_pipeline.selection.problem import Problem


class GroupRelativeConfig(Settings):
    """How many masks are compared, with what, and under which score function."""

    num_rollouts: int = pydantic.Field(
        128, ge=2, description="Masks drawn each epoch, G; one alone would have nothing to compare with."
    )
    baseline: Literal["group_mean", "leave_one_out"] = pydantic.Field(
        "group_mean", description="What a reward is compared with; leave_one_out is unbiased."
    )
    log_prob: Literal["product_of_softmax", "plackett_luce"] = pydantic.Field(
        "product_of_softmax", description="Score function: the paper's, or the exact one of the ordered draw."
    )


class GroupRelative(GradientEstimator):
    """``(1/G) sum_j A_j d log P(mask_j) / d logits``, masks drawn without replacement.

    Source: DATAMASK (arXiv 2512.24265); group-relative advantages after GRPO (arXiv 2402.03300).
    """

    name = "group_relative"
    Config = GroupRelativeConfig
    config: GroupRelativeConfig

    def check(self, problem: Problem) -> None:
        if problem.budget.tokens and self.config.log_prob == "plackett_luce":
            raise ConfigurationError(
                "log_prob plackett_luce is of draws of a number of documents; with num_tokens use product_of_softmax"
            )

    def estimate(self, batch: Batch, draws: torch.Generator) -> Estimate:
        from datamask_pipeline.selection.policy_gradient.rollouts import WithoutReplacement
        from datamask_pipeline.selection.rewards import advantages, rewards

        config = self.config
        policy = WithoutReplacement(batch.logits_N, batch.budget)
        rollouts = policy.sample(config.num_rollouts, draws)
        rewards_G = rewards(batch, rollouts.masks_GN)
        weights_G = advantages(rewards_G, config.baseline) / len(rewards_G)
        return Estimate(gradient_N=policy.score(rollouts, weights_G, config.log_prob), rewards_G=rewards_G)

    def update(self, estimate: Estimate, batch: Batch) -> Tensor:
        import torch

        # Dividing every advantage by the group's deviation divides their sum by it.
        deviation = float(estimate.rewards_G.std())
        return estimate.gradient_N / deviation if deviation > 0 else torch.zeros_like(estimate.gradient_N)


ESTIMATOR = GroupRelative
