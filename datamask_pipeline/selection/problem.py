"""Everything a policy needs to choose a mask. Knows no policy and no input format.

Shape suffixes: N documents.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import Moments
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.budget import TIE, Budget
from datamask_pipeline.selection.checkpoint import Checkpoint
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.moments.statistics import Statistics
from datamask_pipeline.selection.objective import MomentObjective, ObjectiveFunction
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.rows import Rows
from datamask_pipeline.selection.solution import Report
from datamask_pipeline.spill import Room


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One block with its objective and budget; documents pruned by quality are no longer in it.

    Attributes:
        constants: (zero, one) of every quality score and diversity metric.
        random_value: Mean objective of uniformly random masks: the zero of every gap and attainment.
        held: Moments of the documents that are held already, if there are any: every value is then that of their union
            with a mask.
        tells_apart: Whether half precision tells the block's documents apart, where a metric looks for the most similar.
        start_N: float64: a relaxed mask of the budget that is near the best, if one is known.
        room: Where vectors that are taken out of a block on disk, to be read again and again, lie; in memory if nowhere.
    """

    config: SelectionConfig
    rows: Rows
    squared_N: Tensor
    objective: ObjectiveFunction
    budget: Budget
    workers: Workers
    constants: dict[str, tuple[float, float]]
    random_value: float
    report: Report
    checkpoint: Checkpoint
    held: Moments | None = None
    tells_apart: bool = True
    start_N: Tensor | None = None
    room: Room | None = None

    @property
    def num_rows(self) -> int:
        """N."""
        return self.rows.num_rows

    @property
    def dtype(self) -> torch.dtype:
        """The arithmetic of gradients."""
        half = self.config.arithmetic == "bfloat16" and self.tells_apart
        return torch.bfloat16 if half else torch.float32

    @property
    def statistics(self) -> Statistics:
        """The block's map-reduce."""
        return Statistics(
            rows=self.rows,
            workers=self.workers,
            squared_N=self.squared_N,
            needs_second=self.objective.needs_second,
            held=self.held,
        )

    @property
    def moment_objective(self) -> MomentObjective:
        """The objective as a function of moments.

        Raises:
            ConfigurationError: a metric is not one of moments.
        """
        if self.objective.moment_terms is None:
            names = [term.name for term in self.objective.terms]
            raise ConfigurationError(f"policy {self.config.policy!r} needs moment metrics, not {names}")
        return MomentObjective(objective=self.objective, moving_count=self.budget.tokens)

    def gap(self, bound: float, value: float) -> float:
        """How far a value is from a bound, as a share of the bound's distance from random; 0 where there is none."""
        if self.budget.takes_everything:
            return 0.0
        distance = bound - self.random_value
        return (bound - value) / distance if distance > TIE * max(abs(bound), abs(self.random_value)) else 0.0

    def value_at(self, gap: float, bound: float) -> float:
        """The objective at which a bound leaves this gap."""
        return bound - gap * max(0.0, bound - self.random_value)
