"""Quality beside the smallest distance of two documents: see ``selection.gist``. Knows no metric of the objective."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pydantic

from datamask_pipeline.selection.policies.base import SelectionPolicy
from datamask_pipeline.settings import Settings

if TYPE_CHECKING:
    from datamask_pipeline.selection.problem import Problem
    from datamask_pipeline.selection.solution import Solution


class GistConfig(Settings):
    """How finely distances are tried."""

    distance_step: float = pydantic.Field(
        0.1,
        ge=0.001,
        le=1,
        description="Distances are tried from half this share of the largest possible, each by this share larger than the "
        "one before; then halves of such steps around the best one, three times.",
    )


class GistPolicy(SelectionPolicy):
    """The best by quality of those that lie so far apart, at the distance that is worth most."""

    name = "gist"
    Config = GistConfig
    knows_given = False
    counts_tokens = False
    unread = frozenset({"diversity", "diversity_options", "dtype"})
    config: GistConfig

    def choose(self, problem: Problem) -> Solution:
        from datamask_pipeline.selection.gist import choose_by_distances

        return choose_by_distances(problem, self.config.distance_step)


POLICY = GistPolicy
