"""Where exchanges of a small block begin: kicks of the best mask, drawn masks, tabu searches. Knows no metric.

Shape suffixes: N documents.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.moments.exchanges import LEAST_GAIN, SEARCHES, Exchanges
from datamask_pipeline.selection.moments.rounding import DRAWS, draw_mask, filled
from datamask_pipeline.selection.moments.values import value_of
from datamask_pipeline.selection.policies.datamask import DataMaskConfig
from datamask_pipeline.selection.problem import Problem

FOUND_AGAIN = 8
"""Where as many starts end at the best that is known, others would too, and so would searches."""
IN_VAIN = 8
"""Tabu searches by exact models, one after the other, that find nothing better: more are not begun."""


class Best:
    """The best of the masks that were offered: the first of those that sums in another order could tell apart."""

    def __init__(self, budget: Budget, worth: Callable[[Tensor], float]) -> None:
        self.budget, self.worth = budget, worth
        self.mask_N, self.value = torch.empty(0), -math.inf

    @classmethod
    def of_moments(cls, problem: Problem) -> Best:
        """Of masks that metrics of moments measure."""
        return cls(problem.budget, partial(value_of, problem.moment_objective, problem.statistics))

    @property
    def found(self) -> bool:
        """Whether there was any."""
        return len(self.mask_N) > 0

    def offer(self, mask_N: Tensor) -> float:
        """Keeps the mask where it is better than what was offered before, both measured in the same way; its value.

        Of masks that only rounding tells apart the first is kept: which copies they hold is left to the lot.
        """
        value = self.worth(mask_N)
        if not self.found or value > self.value + LEAST_GAIN:
            self.mask_N, self.value = mask_N, value
        return value


def search_on(exchanges: Exchanges, known: Best, config: DataMaskConfig) -> None:
    """Offers what kicks, drawn masks and tabu searches end at, as far as there is time; for budgets in documents."""
    _kick(exchanges, known, config.num_kicks)
    before = known.value
    if _begun_anew(exchanges, known, config.num_restarts):
        return
    if known.value > before:
        _kick(exchanges, known, config.num_kicks)
    num_turns = min(config.num_kicks, exchanges.num_turns(known.mask_N))
    if num_turns and config.num_restarts:
        num_searches = min(SEARCHES, config.num_restarts)
        known.offer(exchanges.searched(known.mask_N, num_turns, num_searches))
    _walk(exchanges, known, config.num_kicks)


def _kick(exchanges: Exchanges, known: Best, most: int) -> None:
    """Offers what exchanges end at from the best that is known, exchanged in part at random."""
    for turn in range(min(most, exchanges.num_kicks(known.mask_N))):
        known.offer(exchanges.improved(exchanges.kicked(known.mask_N, turn)))


def _begun_anew(exchanges: Exchanges, known: Best, most: int) -> bool:
    """Offers what exchanges end at from drawn starts; whether that was the best `FOUND_AGAIN` times, which is enough."""
    times, num_turns = 0, min(most, exchanges.num_restarts(known.mask_N))
    for turn in range(num_turns):
        before, value = known.value, known.offer(exchanges.improved(exchanges.restarted(turn)))
        times = 0 if known.value > before else times + (value >= before - LEAST_GAIN)
        if times == FOUND_AGAIN:
            return True
    return False


def round_anew(exchanges: Exchanges, known: Best, most: int, weights_N: Tensor) -> None:
    """Offers what exchanges end at from other draws of the relaxed mask, filled up."""
    budget = known.budget
    for turn in range(min(most, exchanges.num_restarts(known.mask_N))):
        improved_N = exchanges.improved(draw_mask(weights_N, budget, DRAWS + turn))
        known.offer(filled(improved_N, weights_N, budget))


def _walk(exchanges: Exchanges, known: Best, most: int) -> None:
    """Offers what tabu searches by exact models come by from the best that is known, exchanged in part at random."""
    num_turns, since = min(most, exchanges.num_walks(known.mask_N)), 0
    for turn in range(num_turns):
        before = known.value
        start_N = exchanges.kicked(known.mask_N, turn) if turn else known.mask_N
        since = 0 if known.offer(exchanges.walked(start_N, turn)) > before + LEAST_GAIN else since + 1
        if since == IN_VAIN:
            break
    if num_turns:
        known.offer(exchanges.improved(known.mask_N))
