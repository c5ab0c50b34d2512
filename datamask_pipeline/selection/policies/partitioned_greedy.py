"""Multi-round partitioned greedy, with bounding: see ``selection.graph.partitioned``. Knows no relaxation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pydantic

from datamask_pipeline.selection.policies.base import SelectionPolicy
from datamask_pipeline.settings import Settings

if TYPE_CHECKING:
    from datamask_pipeline.selection.problem import Problem
    from datamask_pipeline.selection.solution import Solution


class PartitionedGreedyConfig(Settings):
    """Partitions, rounds, and whether bounding comes first."""

    num_partitions: int = pydantic.Field(
        8, ge=1, description="Random parts of the block, of each of which greedy takes its share."
    )
    num_rounds: int = pydantic.Field(
        4,
        ge=1,
        description="Times that what was taken is dealt out anew, and less of it taken; the last round takes the budget.",
    )
    adaptive: bool = pydantic.Field(
        True,
        description="Whether later rounds have as few partitions as hold what is left, each as large as in the first.",
    )
    bounding: bool = pydantic.Field(
        True, description="Whether documents that are in every best mask, or in none, are settled first."
    )


class PartitionedGreedyPolicy(SelectionPolicy):
    """What greedy takes of random parts, which know no edges to each other, again and again; for Pair_graph alone."""

    name = "partitioned_greedy"
    counts_tokens = False
    along_graph = True
    Config = PartitionedGreedyConfig
    config: PartitionedGreedyConfig

    def choose(self, problem: Problem) -> Solution:
        from datamask_pipeline.selection.graph.partitioned import choose_in_partitions

        return choose_in_partitions(problem, self.config)


POLICY = PartitionedGreedyPolicy
