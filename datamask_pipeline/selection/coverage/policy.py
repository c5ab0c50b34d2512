"""Facility location for the policies: from a `Problem` to a `Solution`. Knows no input format.

Shape suffixes: N documents, R references, D embedding dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from datamask_pipeline.diversity.base import CoverageMetric
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.coverage.dense import dense_lazy_greedy
from datamask_pipeline.selection.coverage.dual import dual_bound
from datamask_pipeline.selection.coverage.evaluate import coverage_of, listed_marginals
from datamask_pipeline.selection.coverage.greedy import empty_state, lazy_greedy
from datamask_pipeline.selection.coverage.nearest import nearest
from datamask_pipeline.selection.coverage.quotas import Quotas
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.seeds import generator
from datamask_pipeline.selection.solution import Solution

NEIGHBOURS_PER_RATIO = 2.4
"""List length times ratio: how many selected documents a list would hold were they drawn at random."""
FEWEST_NEIGHBOURS = 16
MOST_BOUND_STEPS = 120
"""Subgradient steps of the bound; it stops earlier when they no longer help."""
MOST_ENTRIES = 200_000_000
"""List entries kept in memory, 12 bytes each; lists of larger problems are shorter, and the record says so."""


@dataclass(frozen=True, kw_only=True)
class Shuffled:
    """A problem's documents in seeded order, so that the row order that breaks ties is the seed's."""

    name: str
    order_N: Tensor
    documents_ND: Tensor
    references_R: Tensor
    linear_N: Tensor
    weight: float
    offset: float

    def unshuffle(self, values_N: Tensor) -> Tensor:
        """Values by shuffled row, back in the block's order."""
        out_N = torch.empty_like(values_N)
        out_N[self.order_N] = values_N
        return out_N


def shuffled(problem: Problem) -> Shuffled:
    """The problem as ``sum of linear + weight * metric + offset``, rows in seeded order.

    Raises:
        ConfigurationError: the objective's diversity is not one coverage metric.
    """
    terms, lamb = problem.objective.terms, problem.objective.lamb
    if len(terms) != 1 or not isinstance(terms[0].metric, CoverageMetric):
        names = [term.name for term in terms]
        raise ConfigurationError(f"policy {problem.config.policy!r} needs one coverage metric, not {names}")
    order_N = torch.randperm(problem.num_rows, generator=generator(problem.config.seed, "order"))
    place_N = torch.empty_like(order_N)
    place_N[order_N] = torch.arange(problem.num_rows)
    return Shuffled(
        name=terms[0].name,
        order_N=order_N,
        documents_ND=problem.rows.everything()[order_N.to(problem.rows.device)],
        references_R=place_N[terms[0].metric.references(problem.num_rows)],
        linear_N=(problem.objective.quality_N * (lamb / problem.budget.num_documents))[order_N],
        weight=(1 - lamb) * terms[0].scale,
        offset=(1 - lamb) * terms[0].offset,
    )


def list_length(num_documents: int, num_references: int, budget: float) -> int:
    """k of the neighbour lists."""
    wanted = max(FEWEST_NEIGHBOURS, math.ceil(NEIGHBOURS_PER_RATIO * num_documents / budget))
    return min(wanted, num_documents, max(FEWEST_NEIGHBOURS, MOST_ENTRIES // num_references))


def choose_by_coverage(problem: Problem) -> Solution:
    """Neighbour lists, lazy greedy on them, and the dual bound."""
    task, budget = shuffled(problem), problem.budget
    num_documents, num_references = len(task.documents_ND), len(task.references_R)
    length = list_length(num_documents, num_references, budget.num_documents)
    lists = nearest(task.documents_ND, task.references_R, length, problem.workers, dtype=problem.dtype)
    problem.report({"step": 1, "num_steps": 3})
    state = empty_state(lists, task.linear_N.numpy(), task.weight)
    picks, _ = lazy_greedy(
        state,
        budget.costs_N[task.order_N].numpy(),
        budget.groups_N[task.order_N].numpy(),
        budget.limits,
    )
    selected_T = torch.from_numpy(picks)
    coverage = coverage_of(task.documents_ND, task.references_R, selected_T, problem.workers, problem.dtype)
    value = float(task.linear_N[selected_T].sum()) + task.weight * coverage.mean
    problem.report({"step": 2, "num_steps": 3, "objective": value + task.offset})
    marginals_N = listed_marginals(lists, coverage)
    solution = Solution(
        mask_N=task.unshuffle(torch.zeros(num_documents, dtype=torch.bool).index_fill_(0, selected_T, True)),
        scores_N=task.unshuffle(task.linear_N + task.weight * marginals_N),
        raw={task.name: coverage.mean},
        diversity_N=task.unshuffle(marginals_N),
        notes={"references": num_references, "neighbours": length, "listed": "exact"},
    )
    if budget.tokens:
        solution.method = "no bound: masks of a token budget differ in their number of documents"
        return solution
    quotas = Quotas(groups_N=budget.groups_N[task.order_N], limits=tuple(map(int, budget.limits)))
    bound, _ = dual_bound(
        lists,
        task.linear_N,
        task.weight,
        quotas,
        start_R=(coverage.best_R + coverage.second_R) / 2,
        width_R=coverage.best_R - coverage.second_R,
        value=value,
        num_steps=MOST_BOUND_STEPS,
    )
    solution.bound = bound + task.offset
    solution.method = "dual thresholds on exact neighbour lists, evaluated in float64"
    problem.report(
        {
            "step": 3,
            "num_steps": 3,
            "objective": value + task.offset,
            "bound": solution.bound,
            "gap": max(0.0, problem.gap(solution.bound, value + task.offset)),
        }
    )
    return solution


def greedy_coverage(problem: Problem) -> Solution:
    """Dense lazy greedy in float32: every similarity, no lists. The control that lists are measured against."""
    task, budget = shuffled(problem), problem.budget
    total = int(sum(budget.limits))
    picks_P = dense_lazy_greedy(
        task.documents_ND,
        task.references_R,
        task.linear_N,
        task.weight,
        budget.groups_N[task.order_N],
        tuple(map(int, budget.limits)),
        report=lambda picks: problem.report({"step": picks, "num_steps": total}),
    )
    ranks_N = torch.full((problem.num_rows,), -1.0, dtype=torch.float64)
    ranks_N[picks_P] = torch.arange(len(picks_P), 0, -1, dtype=torch.float64)
    mask_N = torch.zeros(problem.num_rows, dtype=torch.bool).index_fill_(0, picks_P, True)
    return Solution(
        mask_N=task.unshuffle(mask_N),
        scores_N=task.unshuffle(ranks_N),
        notes={"references": len(task.references_R), "picks": len(picks_P)},
    )
