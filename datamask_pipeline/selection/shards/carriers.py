"""How a step reaches the processes that hold documents, by name. Knows no step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.shards.processes import Processes
from datamask_pipeline.selection.shards.ranks import Ranks, num_ranks
from datamask_pipeline.selection.shards.ray_actors import RayActors
from datamask_pipeline.selection.shards.team import Team, Together

Engine = Literal["processes", "ray", "ranks", "here"]
ENGINES = ("processes", "ray", "ranks", "here")


def members_of(engine: Engine, workers: int) -> int:
    """The number of members: as many as asked for, or every rank of the job.

    Raises:
        ConfigurationError: no such engine, no worker, or no job that has ranks.
    """
    if engine not in ENGINES:
        raise ConfigurationError(f"there is no engine {engine!r}; choose one of: {', '.join(ENGINES)}")
    if isinstance(workers, bool) or not isinstance(workers, int | np.integer) or workers < 1:
        raise ConfigurationError(f"workers must be a whole number, at least 1, not {workers!r}")
    return num_ranks() if engine == "ranks" else int(workers)


def team_of(engine: Engine, jobs: Sequence[Mapping[str, Any]], address: str | None) -> Team:
    """The members, one for each job, not begun yet."""
    if engine == "ranks":
        return Ranks(jobs)
    if engine == "ray":
        return RayActors(jobs, address)
    return Together(jobs) if engine == "here" or len(jobs) == 1 else Processes(jobs)
