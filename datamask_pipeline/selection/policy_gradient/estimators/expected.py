"""The expectation itself: no sampling noise. Knows only quadratic metrics.

Shape suffixes: N documents of a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.policy_gradient.estimators.base import Batch, Estimate, GradientEstimator

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from datamask_pipeline.selection.objective import ObjectiveFunction
    from datamask_pipeline.selection.problem import Problem


class Expected(GradientEstimator):
    """The exact gradient of the expected objective under independent inclusion, for quadratic metrics.

    The expectation is the multilinear extension: what a document pays for its product with itself is counted once,
    not squared. That diagonal makes it not concave; certificates come from the relaxation instead.
    """

    name = "expected"

    def check(self, problem: Problem) -> None:
        _refuse_others(problem.objective)

    def estimate(self, batch: Batch, draws: torch.Generator) -> Estimate:
        import torch

        from datamask_pipeline.selection.policy_gradient.rollouts import IndependentInclusion
        from datamask_pipeline.selection.rewards import marginals

        _refuse_others(batch.objective)
        policy = IndependentInclusion(batch.logits_N, batch.budget)
        slopes_N = marginals(batch, policy.probabilities_N)
        # F(p) = a.p + p'Hp/2 with slopes a + Hp: the mean of the slopes at 0 and at p, times p.
        alone_N = marginals(batch, torch.zeros_like(policy.probabilities_N))
        reward = float((slopes_N + alone_N) @ policy.probabilities_N) / 2
        reward += (1 - batch.objective.lamb) * sum(term.offset for term in batch.objective.terms)
        return Estimate(
            gradient_N=policy.logit_gradient(slopes_N), rewards_G=torch.tensor([reward], dtype=torch.float64)
        )

    def update(self, estimate: Estimate, batch: Batch) -> Tensor:
        from datamask_pipeline.selection.policy_gradient.rollouts import IndependentInclusion

        return IndependentInclusion(batch.logits_N, batch.budget).natural_step(estimate.gradient_N)


def _refuse_others(objective: ObjectiveFunction) -> None:
    from datamask_pipeline.diversity.moments import MomentMetric

    for term in objective.terms:
        if not (isinstance(term.metric, MomentMetric) and term.metric.quadratic):
            raise ConfigurationError(
                f"diversity metric {term.name!r} has no closed-form expectation; use estimator counterfactual"
            )


ESTIMATOR = Expected
