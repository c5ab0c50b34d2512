"""Incremental greedy: the fair opponent. Knows no relaxation.

Shape suffixes: N documents, D embedding dimensions.

Quadratic moment metrics keep every document's gain up to date with one product per pick, ``O(N d)``. Other moment
metrics recompute every gain at each pick, ``O(N d^2)``: exactly where the metric has exact marginals, else to first
order. Facility location uses dense lazy greedy, and similarities along a graph a lazy one over its edges.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from datamask_pipeline.diversity.base import CoverageMetric
from datamask_pipeline.diversity.moments import Moments, moments_of
from datamask_pipeline.diversity.pair_graph import PairGraph
from datamask_pipeline.selection.graph.greedy import greedy_solution
from datamask_pipeline.selection.graph.objective import GraphObjective
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.rows import MemoryRows, Rows
from datamask_pipeline.selection.seeds import generator
from datamask_pipeline.selection.solution import Solution

REPORT_EVERY = 256
RESOLUTION = 2.0**-22
"""Diversity gains closer than this share of their own magnitude are equal: float32 products resolve no more."""


def check_greedy(problem: Problem) -> None:
    """Refuse what has no gain of one document.

    Raises:
        ConfigurationError: a metric of another family.
    """
    if not (_is_coverage(problem) or _is_along_graph(problem)):
        _ = problem.moment_objective


def choose_by_gains(problem: Problem) -> Solution:
    """Add the document of the largest gain until the budget is met."""
    if _is_coverage(problem):
        from datamask_pipeline.selection.facility.choose import greedy_coverage

        return greedy_coverage(problem)
    if (on_graph := GraphObjective.of(problem)) is not None:
        return greedy_solution(problem, on_graph)
    order = _Picks(problem)
    pick = _quadratic_picks if problem.moment_objective.quadratic else _refreshed_picks
    pick(problem, order)
    ranks_N = torch.full((problem.num_rows,), -1.0, dtype=torch.float64)
    ranks_N[torch.tensor(order.picks)] = torch.arange(len(order.picks), 0, -1, dtype=torch.float64)
    return Solution(mask_N=order.mask_N, scores_N=ranks_N)


def _is_coverage(problem: Problem) -> bool:
    terms = problem.objective.terms
    return len(terms) == 1 and isinstance(terms[0].metric, CoverageMetric)


def _is_along_graph(problem: Problem) -> bool:
    terms = problem.objective.terms
    return len(terms) == 1 and isinstance(terms[0].metric, PairGraph)


class _Picks:
    """The picks so far, and who may still be picked."""

    def __init__(self, problem: Problem) -> None:
        self.total = int(sum(problem.budget.limits))
        self.left = [int(limit) for limit in problem.budget.limits]
        self.groups_N = problem.budget.groups_N
        self.mask_N = torch.zeros(problem.num_rows, dtype=torch.bool)
        self.closed_N = torch.zeros(problem.num_rows, dtype=torch.float64)
        self.picks: list[int] = []
        for group, left in enumerate(self.left):
            if left == 0:
                self.closed_N[self.groups_N == group] = -torch.inf
        draws = generator(problem.budget.seed, "greedy")
        self.lots_N = torch.randperm(problem.num_rows, generator=draws)
        self.typical: float | None = None
        self.report = problem.report

    def best(self, linear_N: Tensor, diversity_N: Tensor) -> int:
        """Pick the document of the largest gain among those open, one of several equal ones by the seed's lot.

        Args:
            linear_N: float64 gain in quality, exact.
            diversity_N: float64 gain in diversity, from float32 products. Only their rounding makes gains equal, so
                that no outlier's quality hides a difference between other documents.
        """
        if self.typical is None:
            self.typical = float(diversity_N.abs().median())
        open_N = linear_N + diversity_N + self.closed_N
        largest = int(open_N.argmax())
        rounding = RESOLUTION * max(self.typical, abs(float(diversity_N[largest])))
        equal_t = torch.nonzero(open_N >= open_N[largest] - rounding).squeeze(1)
        pick = int(equal_t[self.lots_N[equal_t].argmin()])
        self.mask_N[pick], self.closed_N[pick] = True, -torch.inf
        group = int(self.groups_N[pick])
        self.left[group] -= 1
        if self.left[group] == 0:
            self.closed_N[self.groups_N == group] = -torch.inf
        self.picks.append(pick)
        if len(self.picks) % REPORT_EVERY == 0:
            self.report({"step": len(self.picks), "num_steps": self.total})
        return pick


def _quadratic_picks(problem: Problem, order: _Picks) -> None:
    objective, rows = problem.moment_objective, problem.rows
    spans = list(rows.spans())
    _hold(rows)
    empty = _empty(problem, order.total)
    linear_N = objective.linear_N(empty.count)
    gains_N = problem.statistics.scores(objective.form(empty))
    # Half of a document's interaction with itself is the second-order part of adding it.
    for start, stop in spans:
        rows_nD = rows.chunk(start, stop)
        for low in range(0, stop - start, 256):
            part_tD = rows_nD[low : low + 256]
            own_tt = objective.interaction(empty, part_tD, part_tD)
            assert own_tt is not None, "quadratic metrics have interactions"
            gains_N[start + low : start + low + len(part_tD)] += own_tt.diagonal().to(torch.float64).cpu() / 2
    while len(order.picks) < order.total:
        row_1D = rows.take(torch.tensor([order.best(linear_N, gains_N)]))

        def bend(span: tuple[int, int], row_1D: Tensor = row_1D) -> Tensor:
            part_1n = objective.interaction(empty, row_1D, rows.chunk(*span))
            assert part_1n is not None, "quadratic metrics have interactions"
            return part_1n[0].cpu()

        gains_N += problem.workers.fill(bend, spans, problem.num_rows)


def _refreshed_picks(problem: Problem, order: _Picks) -> None:
    objective, statistics = problem.objective, problem.statistics
    terms = objective.moment_terms
    assert terms is not None, "checked before any work"
    moving = any(metric.moving_count for _, metric in terms)
    _hold(problem.rows)
    # One average document stands in for the moments that a first-order gain needs before there is a pick.
    everything = statistics.own_moments(torch.ones(problem.num_rows, dtype=torch.bool))
    average = Moments.zero(problem.rows.dim, statistics.needs_second).plus(everything, 1 / problem.num_rows)
    picked, outside_N = _empty(problem, 0), torch.zeros(problem.num_rows, dtype=torch.bool)
    while len(order.picks) < order.total:
        total = (len(order.picks) + 1 if moving else order.total) + objective.held_count
        linear_N = problem.moment_objective.linear_N(total)
        gains_N = torch.zeros_like(linear_N)
        for term, metric in terms:
            moments = picked if metric.exact_marginals else picked.plus(average)
            if not metric.moving_count:
                moments = replace(moments, count=float(total))
            marginals_N = statistics.marginals(metric.marginals_at(moments), outside_N)
            gains_N += (1 - objective.lamb) * term.scale * marginals_N
        row_1D = problem.rows.take(torch.tensor([order.best(linear_N, gains_N)]))
        picked = picked.plus(
            moments_of(row_1D.cpu(), torch.ones(1, dtype=torch.bool), statistics.needs_second)
        )


def _hold(rows: Rows) -> None:
    """Keeps rows in memory in the type that every pick reads them in."""
    if isinstance(rows, MemoryRows):
        rows.everything()


def _empty(problem: Problem, count: float) -> Moments:
    """The moments of no pick, with what is held, and with the count of so many picks."""
    empty = Moments.zero(problem.rows.dim, problem.objective.needs_second)
    if problem.held is not None:
        empty = empty.plus(problem.held)
    return replace(empty, count=empty.count + count)
