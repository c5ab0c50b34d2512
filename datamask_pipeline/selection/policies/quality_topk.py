"""The documents of the highest quality: what FineWeb-Edu and its kin do. Knows no diversity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from datamask_pipeline.selection.policies.base import SelectionPolicy
from datamask_pipeline.selection.reasons import BY_QUALITY

if TYPE_CHECKING:
    from datamask_pipeline.selection.problem import Problem
    from datamask_pipeline.selection.solution import Solution


class QualityTopKPolicy(SelectionPolicy):
    """The best by quality; equal scores are drawn by the seed."""

    name = "quality_topk"
    decision = BY_QUALITY
    by_rule = True
    unread = frozenset({"lamb", "diversity", "diversity_options", "dtype"})

    def choose(self, problem: Problem) -> Solution:
        from datamask_pipeline.selection.solution import Solution

        quality_N = problem.objective.quality_N
        return Solution(mask_N=problem.budget.best(quality_N, exact=True), scores_N=quality_N.clone())


POLICY = QualityTopKPolicy
