"""Facility location for the policies: from a `Problem` to a `Solution`. Knows no input format.

Shape suffixes: N documents, R references, D embedding dimensions, T selected documents.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from datamask_pipeline.diversity.base import CoverageMetric
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.coverage.clustered import clustered_lists
from datamask_pipeline.selection.coverage.dense import dense_lazy_greedy
from datamask_pipeline.selection.coverage.dual import dual_bound
from datamask_pipeline.selection.coverage.evaluate import (
    Coverage,
    coverage_of,
    listed_coverage,
    listed_marginals,
)
from datamask_pipeline.selection.coverage.greedy import empty_state, lazy_greedy
from datamask_pipeline.selection.coverage.lists import NeighbourLists
from datamask_pipeline.selection.coverage.nearest import nearest
from datamask_pipeline.selection.coverage.quotas import Quotas
from datamask_pipeline.selection.coverage.sampled import ERROR_PROBABILITY, missed_excess
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.seeds import generator
from datamask_pipeline.selection.solution import Solution

NEIGHBOURS_PER_RATIO = 2.4
"""List length times ratio: how many selected documents a list would hold were they drawn at random."""
FEWEST_NEIGHBOURS = 16
MOST_ENTRIES = 200_000_000
"""List entries kept in memory, 12 bytes each; lists of larger problems are shorter, and the record says so."""
MOST_BOUND_STEPS = 120
"""Subgradient steps of the bound; it stops earlier when they no longer help."""
NUM_STEPS = 4
"""What is reported as a step: lists, picks, coverage, bound."""


@dataclass(frozen=True, kw_only=True)
class Shuffled:
    """A problem as ``sum of linear + weight * metric + offset``, its documents in seeded order.

    The row order that breaks ties is then the seed's.
    """

    problem: Problem
    name: str
    order_N: Tensor
    documents_ND: Tensor
    references_R: Tensor
    linear_N: Tensor
    weight: float
    offset: float

    @property
    def quotas(self) -> Quotas:
        """The budget in documents."""
        limits = tuple(int(limit) for limit in self.problem.budget.limits)
        return Quotas(groups_N=self.problem.budget.groups_N[self.order_N], limits=limits)

    def value(self, selected_T: Tensor, coverage: Coverage) -> float:
        """The objective of a mask with this coverage, without `offset`."""
        return float(self.linear_N[selected_T].sum()) + self.weight * coverage.mean

    def mask(self, selected_T: Tensor) -> Tensor:
        """The mask of these rows, in the block's order."""
        chosen_N = torch.zeros(len(self.order_N), dtype=torch.bool)
        return self.unshuffle(chosen_N.index_fill_(0, selected_T, True))

    def unshuffle(self, values_N: Tensor) -> Tensor:
        """Values by shuffled row, in the block's order."""
        out_N = torch.empty_like(values_N)
        out_N[self.order_N] = values_N
        return out_N


def shuffled(problem: Problem) -> Shuffled:
    """The problem in seeded order.

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
        problem=problem,
        name=terms[0].name,
        order_N=order_N,
        documents_ND=problem.rows.take(order_N),
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
    """Neighbour lists, lazy greedy on them, and the dual bound.

    Where the metric has every document as a reference, lists are exact. In larger blocks every document stays a
    reference too, but lists come from clusters; the metric's landmarks then only place random masks.
    """
    task, budget, workers = shuffled(problem), problem.budget, problem.workers
    exact = len(task.references_R) == problem.num_rows
    length = list_length(problem.num_rows, problem.num_rows, budget.num_documents)
    if exact:
        lists = nearest(task.documents_ND, task.references_R, length, workers, dtype=problem.dtype)
    else:
        draws = generator(problem.config.seed, "clusters")
        lists = clustered_lists(task.documents_ND, length, draws, workers, problem.dtype)
    problem.report({"step": 1, "num_steps": NUM_STEPS})
    picks, _ = lazy_greedy(
        empty_state(lists, task.linear_N.numpy(), task.weight),
        budget.costs_N[task.order_N].numpy(),
        budget.groups_N[task.order_N].numpy(),
        budget.limits,
    )
    selected_T = torch.from_numpy(picks)
    problem.report({"step": 2, "num_steps": NUM_STEPS})
    if exact:
        coverage = coverage_of(task.documents_ND, task.references_R, selected_T, workers, problem.dtype)
    else:
        coverage = listed_coverage(lists, task.documents_ND, selected_T, workers, problem.dtype)
    value = task.value(selected_T, coverage) + task.offset
    problem.report({"step": 3, "num_steps": NUM_STEPS, "objective": value})
    marginals_N = listed_marginals(lists, coverage)
    solution = Solution(
        mask_N=task.mask(selected_T),
        scores_N=task.unshuffle(task.linear_N + task.weight * marginals_N),
        raw={task.name: coverage.mean},
        diversity_N=task.unshuffle(marginals_N),
        notes={
            "references": problem.num_rows,
            "neighbours": length,
            "lists": "exact" if exact else "from clusters",
        },
    )
    _certify(task, lists, selected_T, coverage, solution)
    return solution


def _certify(
    task: Shuffled, lists: NeighbourLists, selected_T: Tensor, coverage: Coverage, solution: Solution
) -> None:
    problem = task.problem
    if problem.budget.tokens:
        solution.method = "no bound: masks of a token budget differ in their number of documents"
        return
    value = task.value(selected_T, coverage)
    bound, levels_R = dual_bound(
        lists,
        task.linear_N,
        task.weight,
        task.quotas,
        start_R=(coverage.best_R + coverage.second_R) / 2,
        width_R=coverage.best_R - coverage.second_R,
        value=value,
        num_steps=MOST_BOUND_STEPS,
    )
    solution.method = "dual thresholds on exact neighbour lists"
    if lists.ceiling_R is None:
        draws = generator(problem.config.seed, "certificate")
        excess, held = missed_excess(
            task.documents_ND, lists, levels_R, draws, problem.workers, problem.dtype
        )
        bound += task.weight * excess
        solution.notes |= {"missed_excess": excess, "recall_where_it_matters": held}
        solution.method = (
            "dual thresholds on neighbour lists from clusters, what these miss bounded by a sample of references; "
            f"holds with probability {1 - ERROR_PROBABILITY}"
        )
    solution.bound = bound + task.offset
    record = {"step": NUM_STEPS, "num_steps": NUM_STEPS, "objective": value + task.offset}
    gap = max(0.0, problem.gap(solution.bound, value + task.offset))
    problem.report(record | {"bound": solution.bound, "gap": gap})


def greedy_coverage(problem: Problem) -> Solution:
    """Dense lazy greedy in float32: every similarity, no lists. The control that lists are measured against."""
    task = shuffled(problem)
    quotas = task.quotas
    picks_P = dense_lazy_greedy(
        task.documents_ND,
        task.references_R,
        task.linear_N,
        task.weight,
        quotas.groups_N,
        quotas.limits,
        problem.workers,
        report=lambda picks: problem.report({"step": picks, "num_steps": quotas.budget}),
    )
    ranks_N = torch.full((problem.num_rows,), -1.0, dtype=torch.float64)
    ranks_N[picks_P] = torch.arange(len(picks_P), 0, -1, dtype=torch.float64)
    return Solution(
        mask_N=task.mask(picks_P),
        scores_N=task.unshuffle(ranks_N),
        notes={"references": len(task.references_R), "picks": len(picks_P)},
    )
