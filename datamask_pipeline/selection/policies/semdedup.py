"""Semantic de-duplication as a policy: see ``selection.semdedup``. Knows no metric of the objective."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pydantic

from datamask_pipeline.selection.policies.base import SelectionPolicy
from datamask_pipeline.settings import Settings

if TYPE_CHECKING:
    from datamask_pipeline.selection.problem import Problem
    from datamask_pipeline.selection.solution import Solution


class SemDedupConfig(Settings):
    """How finely the block is cut."""

    num_clusters: int | None = pydantic.Field(
        None,
        ge=1,
        description="Clusters of the block; null means the square root of the number of documents.",
    )


class SemDedupPolicy(SelectionPolicy):
    """The documents that are least like another one of their cluster."""

    name = "semdedup"
    Config = SemDedupConfig
    unread = frozenset("lamb diversity diversity_options normalisation normalisation_constants dtype".split())
    config: SemDedupConfig

    def choose(self, problem: Problem) -> Solution:
        from datamask_pipeline.selection.semdedup import choose_by_clusters

        return choose_by_clusters(problem, self.config.num_clusters)


POLICY = SemDedupPolicy
