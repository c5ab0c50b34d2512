"""The paper's learner as a policy: see ``selection.policy_gradient``. Knows no input format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from datamask_pipeline.selection.policies.base import SelectionPolicy

if TYPE_CHECKING:
    from datamask_pipeline.selection.problem import Problem
    from datamask_pipeline.selection.solution import Solution


class PolicyGradientPolicy(SelectionPolicy):
    """The learner with the estimator that the settings name."""

    name = "policy_gradient"

    def check(self, problem: Problem) -> None:
        from datamask_pipeline.selection.policy_gradient import check_policy_gradient

        check_policy_gradient(problem, problem.config)

    def choose(self, problem: Problem) -> Solution:
        from datamask_pipeline.selection.policy_gradient import choose_by_policy_gradient

        return choose_by_policy_gradient(problem, problem.config)


POLICY = PolicyGradientPolicy
