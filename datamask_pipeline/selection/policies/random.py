"""Uniformly random documents: what raw data would be. Knows no metric and no score."""

from __future__ import annotations

from typing import TYPE_CHECKING

from datamask_pipeline.selection.policies.base import SelectionPolicy
from datamask_pipeline.selection.reasons import BY_DRAW

if TYPE_CHECKING:
    from datamask_pipeline.selection.problem import Problem
    from datamask_pipeline.selection.solution import Solution


class RandomPolicy(SelectionPolicy):
    """Every mask of the budget is equally likely; the control for everything else."""

    name = "random"
    decision = BY_DRAW
    by_rule = True
    unread = frozenset(
        "lamb diversity diversity_options normalisation normalisation_constants dtype chunk_rows".split()
    )

    def choose(self, problem: Problem) -> Solution:
        import torch

        from datamask_pipeline.selection.seeds import generator
        from datamask_pipeline.selection.solution import Solution

        draws = generator(problem.config.seed, "policy", self.name)
        scores_N = torch.rand(problem.num_rows, generator=draws, dtype=torch.float64)
        mask_N = problem.budget.prefix(scores_N)
        probabilities_N = torch.full_like(scores_N, float(mask_N.double().mean()))
        for group in range(len(problem.budget.limits)):
            members_N = problem.budget.groups_N == group
            probabilities_N[members_N] = float(mask_N[members_N].double().mean())
        return Solution(mask_N=mask_N, scores_N=scores_N, probabilities_N=probabilities_N)


POLICY = RandomPolicy
