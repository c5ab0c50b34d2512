"""Incremental greedy, the fair opponent: see ``selection.greedy``. Knows no relaxation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from datamask_pipeline.selection.policies.base import SelectionPolicy
from datamask_pipeline.selection.reasons import BY_TURN

if TYPE_CHECKING:
    from datamask_pipeline.selection.problem import Problem
    from datamask_pipeline.selection.solution import Solution


class GreedyPolicy(SelectionPolicy):
    """Add the document of the largest gain until the budget is met."""

    name = "greedy"
    decision = BY_TURN
    counts_tokens = False

    def check(self, problem: Problem) -> None:
        from datamask_pipeline.selection.greedy import check_greedy

        check_greedy(problem)

    def choose(self, problem: Problem) -> Solution:
        from datamask_pipeline.selection.greedy import choose_by_gains

        return choose_by_gains(problem)


POLICY = GreedyPolicy
