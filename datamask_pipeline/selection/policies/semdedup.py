"""Semantic de-duplication as a policy: see ``selection.semdedup``. Knows no metric of the objective."""

from __future__ import annotations

from typing import TYPE_CHECKING

from datamask_pipeline.selection.policies.base import SelectionPolicy

if TYPE_CHECKING:
    from datamask_pipeline.selection.problem import Problem
    from datamask_pipeline.selection.solution import Solution


class SemDedupPolicy(SelectionPolicy):
    """The documents that are least like another one of their cluster."""

    name = "semdedup"

    def choose(self, problem: Problem) -> Solution:
        from datamask_pipeline.selection.semdedup import choose_by_clusters

        return choose_by_clusters(problem, problem.config.num_clusters)


POLICY = SemDedupPolicy
