"""Leaving documents out before learning: too long for a token budget, outlying, the worst by quality. Knows no learner.

Shape suffixes: N documents of the block, n of those that stay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamask_pipeline.arrays import mean_ranks
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.hardware import present_device
from datamask_pipeline.selection.budget import Budget, no_two_fit
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.outliers import outlying
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.reasons import OUTLYING, PRUNED, TOO_LONG
from datamask_pipeline.selection.rows import Rows

COUNTED = {PRUNED: "rows_pruned_by_quality", TOO_LONG: "rows_too_long", OUTLYING: "rows_outlying"}
"""What the record calls the number of documents left out for a reason."""
_WHY = ("", *COUNTED)


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """The block that is left, and how to speak of the whole one.

    Attributes:
        why_N: For which of the reasons a document of the whole block is left out, from 1 on; 0 where it is not.
    """

    rows: Rows
    scores: dict[str, Tensor]
    budget: Budget
    why_N: NDArray[np.uint8]

    @cached_property
    def kept_N(self) -> NDArray[np.bool_]:
        """Who is left: bool over the whole block."""
        return np.asarray(self.why_N == 0, dtype=bool)

    @property
    def left_out(self) -> str:
        """Why documents are left out, each reason once; empty where none is."""
        numbers = np.flatnonzero(np.bincount(self.why_N, minlength=len(_WHY))[1:]) + 1
        return ", ".join(_WHY[number] for number in numbers)

    def spread(self, values_n: NDArray[Any], missing: Any) -> NDArray[Any]:
        """Values of the documents left, over the whole block."""
        kept_N = self.kept_N
        if kept_N.all():
            return values_n
        whole_N = np.full(len(kept_N), missing, dtype=values_n.dtype)
        whole_N[kept_N] = values_n
        return whole_N

    def reasons(self, reasons_n: NDArray[np.object_]) -> NDArray[np.object_]:
        """The reasons of the documents left, and why the others are not."""
        whole_N: NDArray[np.object_] = np.array(_WHY, dtype=object)[self.why_N]
        whole_N[self.kept_N] = reasons_n
        return whole_N

    def left_of(self, values_N: Tensor) -> Tensor:
        """Of values over the whole block those of the documents left."""
        return values_N if self.kept_N.all() else values_N[torch.from_numpy(self.kept_N)]

    def counts(self) -> dict[str, int]:
        """How many documents are left out for which reason, as the record has it."""
        numbers = np.bincount(self.why_N, minlength=len(_WHY)).tolist()
        found = dict(zip(_WHY, numbers, strict=True))
        return {name: found[why] for why, name in COUNTED.items() if why == PRUNED or found[why]}

    def without(self, out_n: Tensor, why: str) -> Pruned:
        """The block without some of the documents left: bool."""
        if not bool(out_n.any()):
            return self
        index_n = torch.nonzero(~out_n).squeeze(1)
        why_N = self.why_N.copy()
        why_N[np.flatnonzero(self.kept_N)[out_n.numpy()]] = _WHY.index(why)
        costs_n, groups_n = self.budget.costs_N[index_n], self.budget.groups_N[index_n]
        return Pruned(
            rows=self.rows.chosen(index_n),
            scores={name: scores_n[index_n] for name, scores_n in self.scores.items()},
            budget=replace(self.budget, costs_N=costs_n, groups_N=groups_n),
            why_N=why_N,
        )


def prune(
    rows: Rows, scores: dict[str, Tensor], budget: Budget, config: SelectionConfig, copies: int = 1
) -> Pruned:
    """Leave out what takes more than half of a budget in tokens, outliers if that is asked for, the share of worst quality.

    Each document that stays may be taken so many times.

    Raises:
        ConfigurationError: too few documents stay for the budget.
        InputError: all but one are too long.
    """
    whole = Pruned(rows=rows, scores=scores, budget=budget, why_N=np.zeros(rows.num_rows, np.uint8))
    left = _short_enough(whole)
    if config.outlier_deviations is not None:
        with Workers(config.num_workers, present_device(config.device)) as workers:
            out_n = outlying(left.rows, config.outlier_deviations, config.seed, workers)
        left = _with_enough(
            left, left.without(out_n, OUTLYING), f"outlier_deviations {config.outlier_deviations}", copies
        )
    num_dropped = math.floor(config.quality_pruning * left.rows.num_rows)
    return left if num_dropped == 0 else _without_worst(left, num_dropped, config, copies)


def _short_enough(left: Pruned) -> Pruned:
    """Without the documents of which a mask could not hold any two."""
    if not left.budget.tokens:
        return left
    costs_N, limit = left.budget.costs_N, left.budget.limits[0]
    too_long_N = 2 * costs_N > limit
    if int((~too_long_N).sum()) < 2:
        row = int(costs_N.argmax())
        raise no_two_fit(limit, row, float(costs_N[row]))
    return left.without(too_long_N, TOO_LONG)


def _without_worst(left: Pruned, num_dropped: int, config: SelectionConfig, copies: int) -> Pruned:
    """Without the documents of the worst weighted mean rank over the scores."""
    weights = config.quality_weights or dict.fromkeys(left.scores, 1.0)
    num_rows = left.rows.num_rows
    # Scores of different scales are compared by rank, which needs no constants.
    ranks_N = torch.zeros(num_rows, dtype=torch.float64)
    for name, scores_N in left.scores.items():
        ranks_N += weights.get(name, 0.0) * torch.from_numpy(mean_ranks(scores_N.numpy()))
    stay = replace(left.budget.ungrouped, limits=(float(num_rows - num_dropped),))
    better = left.without(~stay.best(ranks_N, exact=True), PRUNED)
    return _with_enough(left, better, f"quality_pruning {config.quality_pruning}", copies)


def _with_enough(before: Pruned, left: Pruned, setting: str, copies: int) -> Pruned:
    """The block that a setting leaves, refused where the budget needs more and there was enough before."""

    def there(budget: Budget, group: int) -> float:
        return copies * float(budget.costs_N[budget.groups_N == group].sum())

    for group, limit in enumerate(left.budget.limits):
        if there(left.budget, group) < limit <= there(before.budget, group):
            raise ConfigurationError(
                f"{setting} leaves {there(left.budget, group):.0f} where the budget needs {limit:.0f}"
            )
    return left
