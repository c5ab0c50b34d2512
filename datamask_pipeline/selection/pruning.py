"""Dropping the worst documents by quality before learning. Knows no learner.

Shape suffixes: N documents of the block, n of those that stay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamask_pipeline.arrays import mean_ranks
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """The block that is left, and how to speak of the whole one.

    Attributes:
        kept_N: bool over the whole block.
    """

    rows: Rows
    scores: dict[str, Tensor]
    budget: Budget
    kept_N: NDArray[np.bool_]

    def spread(self, values_n: NDArray[Any], missing: Any) -> NDArray[Any]:
        """Values of the documents left, over the whole block."""
        if self.kept_N.all():
            return values_n
        whole_N = np.full(len(self.kept_N), missing, dtype=values_n.dtype)
        whole_N[self.kept_N] = values_n
        return whole_N


def prune(rows: Rows, scores: dict[str, Tensor], budget: Budget, config: SelectionConfig) -> Pruned:
    """Drop the share of documents with the worst weighted mean rank over the scores.

    Raises:
        ConfigurationError: too few documents stay for the budget.
    """
    num_dropped = math.floor(config.quality_pruning * rows.num_rows)
    if num_dropped == 0:
        return Pruned(rows=rows, scores=scores, budget=budget, kept_N=np.ones(rows.num_rows, dtype=bool))
    weights = config.quality_weights or dict.fromkeys(scores, 1.0)
    # Scores of different scales are compared by rank, which needs no constants.
    ranks_N = torch.zeros(rows.num_rows, dtype=torch.float64)
    for name, scores_N in scores.items():
        ranks_N += weights.get(name, 0.0) * torch.from_numpy(mean_ranks(scores_N.numpy()))
    stay = replace(budget.ungrouped, limits=(float(rows.num_rows - num_dropped),))
    kept_N = stay.best(ranks_N, exact=True)
    index_n = torch.nonzero(kept_N).squeeze(1)
    left = replace(budget, costs_N=budget.costs_N[index_n], groups_N=budget.groups_N[index_n])
    for group, limit in enumerate(left.limits):
        there = float(left.costs_N[left.groups_N == group].sum())
        if limit > there:
            raise ConfigurationError(
                f"quality_pruning {config.quality_pruning} leaves {there:.0f} where the budget needs {limit:.0f}"
            )
    return Pruned(
        rows=rows.chosen(index_n),
        scores={name: scores_N[index_n] for name, scores_N in scores.items()},
        budget=left,
        kept_N=kept_N.numpy(),
    )
