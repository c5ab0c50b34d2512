"""Facility location for the policies: from a `Problem` to a `Solution`. Knows no input format.

Shape suffixes: N documents, R references, D embedding dimensions, T selected documents.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from datamask_pipeline.diversity.base import CoverageMetric
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.facility.clustered import clustered_lists
from datamask_pipeline.selection.facility.dense import dense_lazy_greedy
from datamask_pipeline.selection.facility.evaluate import (
    Coverage,
    completed,
    listed_coverage,
    listed_marginals,
)
from datamask_pipeline.selection.facility.exchanges import Exchanges
from datamask_pipeline.selection.facility.lists import NeighbourLists
from datamask_pipeline.selection.facility.nearest import nearest
from datamask_pipeline.selection.facility.parts import Part, Parts
from datamask_pipeline.selection.facility.sampled import ERROR_PROBABILITY, missed_excess
from datamask_pipeline.selection.facility.solve import (
    PULLS,
    CoverageMask,
    CoverageTask,
    Improve,
    certified_mask,
)
from datamask_pipeline.selection.facility.tokens import token_bound
from datamask_pipeline.selection.full_masks import FullMasks
from datamask_pipeline.selection.policies.datamask import DataMaskConfig
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.seeds import generator
from datamask_pipeline.selection.solution import OF_FULL_MASKS, Solution

NEIGHBOURS_PER_RATIO = 3.6
"""List length times ratio: how many selected documents a list would hold were they drawn at random."""
FEWEST_NEIGHBOURS = 16
MOST_ENTRIES = 200_000_000
"""List entries kept in memory, 12 bytes each; lists of larger problems are shorter, and the record says so."""
MOST_EXACT = 32_768
"""Documents whose every similarity is looked at; the lists of more come from clusters."""
MOST_SILENT, LENGTHEN = 0.001, 4
"""Exact lists are made so many times longer, where they are silent about something, while all that weighs more than
this share of the distance from random: where near-copies fill them, or the mask has no document on them.

Lists from clusters are not: finding them again costs more than all else, and the sample behind their certificate
counts what any list leaves out."""
LEAST_SILENT = 1e-5
"""Mean similarity that is too little to search for again, as where all documents are one."""
SHARES, FEWER = (0.0, 0.5, 0.9), (1, 2, 4)
"""Where the number of documents is free: mean qualities that greedy is led by, from that of all documents to the largest;
and how many times fewer documents than expected a mask may have."""
MOST_AGAIN = 8
"""Times greedy is led by the mean quality of its last mask, where the number of documents is free."""
LISTED, BEGUN, CHOSEN, CERTIFIED = 70, 80, 95, 100
"""What is reported as a step: about so many hundredths of the time until lists, a first mask, the best one, the
certificate."""


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
    def exact(self) -> bool:
        """Whether lists are: where the metric has every document as a reference, and these are few enough."""
        return len(self.references_R) == len(self.order_N) <= MOST_EXACT

    def on(self, lists: NeighbourLists) -> CoverageTask:
        """What the solver needs to know; coverage is exact, or where lists may miss something never overstated."""
        budget, workers, dtype = self.problem.budget, self.problem.workers, self.problem.dtype
        references_R = self.references_R if self.exact else torch.arange(len(self.order_N))

        def cover(selected_T: Tensor) -> Coverage:
            listed = listed_coverage(lists, selected_T)
            return completed(lists, listed, self.documents_ND, references_R, selected_T, workers, dtype)

        return CoverageTask(
            linear_N=self.linear_N,
            weight=self.weight,
            costs_N=budget.costs_N[self.order_N],
            groups_N=budget.groups_N[self.order_N],
            limits=tuple(budget.limits),
            cover=cover,
        )

    def greedy(self, lists: NeighbourLists) -> CoverageMask:
        """Greedy's mask on the lists, with what it really covers."""
        task = self.on(lists)
        return task.measured(task.picks(lists))

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


def choose_by_coverage(problem: Problem, config: DataMaskConfig) -> Solution:
    """Neighbour lists, greedy on them, the dual bound, greedy led by it, and swaps; in small blocks exchanges at last.

    Up to `MOST_EXACT` documents, lists are exact. In larger blocks every document is a reference too, but lists come
    from clusters; landmarks of the metric then only place random masks.
    """
    task = shuffled(problem)
    lists, first = _listed(task)
    problem.report({"step": BEGUN, "num_steps": CERTIFIED})
    if problem.budget.tokens:
        return _in_tokens(task, lists, first)
    certified = certified_mask(task.on(lists), lists, first, _exchanges(task, config))
    solution = _solution(task, lists, certified.mask)
    solution.notes["swaps"] = certified.num_swaps
    value = certified.mask.value + task.offset
    problem.report({"step": CHOSEN, "num_steps": CERTIFIED, "objective": value})
    bound, solution.method = certified.bound, "Lagrangian dual on exact neighbour lists"
    if lists.ceiling_R is None:
        draws = generator(problem.config.seed, "certificate")
        excess, held = missed_excess(
            task.documents_ND, lists, certified.dual_R, draws, problem.workers, problem.dtype
        )
        bound += task.weight * excess
        solution.notes |= {"missed_excess": excess, "recall_where_it_matters": held}
        solution.method = (
            "Lagrangian dual on neighbour lists from clusters, what these miss bounded by a sample of references; "
            f"holds with probability {1 - ERROR_PROBABILITY}"
        )
    solution.bound = bound + task.offset
    # Exact lists have the block's documents in order as their references, those from clusters the shuffled ones.
    solution.dual_N = certified.dual_R if task.exact else task.unshuffle(certified.dual_R)
    gap = max(0.0, problem.gap(solution.bound, value))
    problem.report(
        {
            "step": CERTIFIED,
            "num_steps": CERTIFIED,
            "objective": value,
            "bound": solution.bound,
            "gap": gap,
        }
    )
    return solution


def _in_tokens(task: Shuffled, lists: NeighbourLists, first: CoverageMask) -> Solution:
    """Greedy's mask, again by what documents exceed its mean quality by while that helps, and led by the bound, if any."""
    problem = task.problem
    quality_N = problem.objective.lamb * problem.objective.quality_N[task.order_N]

    def value(mask: CoverageMask) -> float:
        return float(quality_N[mask.selected_T].mean()) + task.weight * mask.coverage.mean

    full, best = FullMasks(problem.budget.costs_N[task.order_N], problem.budget.limits[0]), first
    mean, most = float(quality_N.mean()), full.largest_mean(quality_N)
    for share, fewer in product(SHARES, FEWER) if problem.objective.lamb else ():
        beyond_N = (quality_N - mean - share * (most - mean)) * (fewer / problem.budget.num_documents)
        best = max(best, replace(task, linear_N=beyond_N).greedy(lists), key=value)
    for _ in range(MOST_AGAIN if problem.objective.lamb else 0):
        beyond_N = (quality_N - quality_N[best.selected_T].mean()) / len(best.selected_T)
        again = replace(task, linear_N=beyond_N).greedy(lists)
        if value(again) <= value(best):
            break
        best = again
    if lists.ceiling_R is None:
        solution = _solution(task, lists, best)
        solution.method = "no bound: in tokens there is none on neighbour lists from clusters"
        return solution
    found = token_bound(lists, quality_N, task.weight, full, best.selected_T, best.coverage)
    led = replace(task, linear_N=found.linear_N).on(lists)
    floors = ((found.dual_R - pull * found.width).clamp(min=0).float() for pull in PULLS)
    best = max((best, *(led.measured(led.picks(lists, floor_R)) for floor_R in floors)), key=value)
    solution = _solution(task, lists, best)
    solution.bound, solution.dual_N = found.bound + task.offset, found.dual_R
    solution.method = f"Lagrangian dual on exact neighbour lists, at every mean quality, {OF_FULL_MASKS}"
    return solution


def _exchanges(task: Shuffled, config: DataMaskConfig) -> Improve | None:
    """Exchanges on every similarity, where these are few."""
    problem = task.problem
    if not task.exact or not config.num_swap_rounds:
        return None
    groups_N, seed = problem.budget.groups_N[task.order_N], problem.config.seed
    block = Exchanges.of(task.documents_ND, task.linear_N, task.weight, groups_N, seed, problem.workers)
    if block is None:
        return None

    def improve(masks: list[Tensor], bound: float) -> Tensor:
        # Greedy on lists is led by what they leave out; greedy on every similarity sometimes ends elsewhere.
        masks = [*masks, _dense_greedy(task, lambda _: None)]
        goal = problem.value_at(config.gap_tolerance, bound + task.offset) - task.offset
        return block.best(masks, config.num_restarts, config.num_kicks, goal)

    return improve


def _listed(task: Shuffled) -> tuple[NeighbourLists, CoverageMask]:
    """Lists, and the first greedy mask; exact lists are made longer where they leave too much unsaid."""
    problem, documents_ND = task.problem, task.documents_ND
    workers, dtype = problem.workers, problem.dtype
    length, longest = first_length(problem.num_rows, problem.budget.num_documents)
    parts = _parts(problem)
    if not task.exact:
        draws = generator(problem.config.seed, "clusters")
        lists = clustered_lists(documents_ND, length, draws, workers, dtype, parts)
        return lists, task.greedy(lists)
    lists = nearest(documents_ND, task.references_R, length, workers, dtype=dtype, parts=parts)
    first = task.greedy(lists)
    while lists.length < longest and len(silent_r := _silent(task, lists, first)):
        length = min(LENGTHEN * lists.length, longest)
        longer = nearest(documents_ND, task.references_R[silent_r], length, workers, dtype=dtype)
        lists = lists.lengthened(silent_r, longer)
        first = task.greedy(lists)
    return lists, first


def _silent(task: Shuffled, lists: NeighbourLists, mask: CoverageMask) -> Tensor:
    """The references that documents outside their lists may cover better than the mask does, if all that is much."""
    assert lists.ceiling_R is not None, "exact lists have one"
    unsaid_R = (lists.ceiling_R - mask.coverage.best_R).clamp(min=0).double()
    unsaid = float(unsaid_R.mean())
    distance = mask.value + task.offset - task.problem.random_value
    if unsaid <= LEAST_SILENT or task.weight * unsaid <= MOST_SILENT * distance:
        return torch.empty(0, dtype=torch.int64)
    return torch.nonzero(unsaid_R).squeeze(1)


def _parts(problem: Problem) -> Parts:
    """The parts of the first list search, written down and reported as it goes on; those of an earlier run first."""
    state = problem.checkpoint.load()
    shown = 0

    def tell(done: int, total: int) -> None:
        nonlocal shown
        step = LISTED * done // total
        if step > shown:
            shown = step
            problem.report({"step": step, "num_steps": CERTIFIED})

    def keep(parts: list[Part]) -> None:
        problem.checkpoint.save({"parts": parts})

    return Parts([] if state is None else state["parts"], keep, tell)


def first_length(num_rows: int, budget: float) -> tuple[int, int]:
    """List length to begin with, and the most that memory allows."""
    longest = min(num_rows, max(FEWEST_NEIGHBOURS, MOST_ENTRIES // num_rows))
    wanted = max(FEWEST_NEIGHBOURS, math.ceil(NEIGHBOURS_PER_RATIO * num_rows / budget))
    return min(wanted, longest), longest


def _solution(task: Shuffled, lists: NeighbourLists, mask: CoverageMask) -> Solution:
    marginals_N = listed_marginals(lists, mask.coverage)
    bare = float((mask.coverage.best_R < lists.floor_R).double().mean())
    return Solution(
        mask_N=task.mask(mask.selected_T),
        scores_N=task.unshuffle(task.linear_N + task.weight * marginals_N),
        raw={task.name: mask.coverage.mean},
        diversity_N=task.unshuffle(marginals_N),
        notes={
            "references": lists.num_references,
            "neighbours": lists.length,
            "lists": "exact" if task.exact else "from clusters",
            "references_outside_lists": bare,
        },
    )


def greedy_coverage(problem: Problem) -> Solution:
    """Dense lazy greedy in float32: every similarity, no lists. The control that lists are measured against."""
    task, total = shuffled(problem), int(sum(problem.budget.limits))
    picks_P = _dense_greedy(task, lambda picks: problem.report({"step": picks, "num_steps": total}))
    ranks_N = torch.full((problem.num_rows,), -1.0, dtype=torch.float64)
    ranks_N[picks_P] = torch.arange(len(picks_P), 0, -1, dtype=torch.float64)
    return Solution(
        mask_N=task.mask(picks_P),
        scores_N=task.unshuffle(ranks_N),
        notes={"references": len(task.references_R), "picks": len(picks_P)},
    )


def _dense_greedy(task: Shuffled, report: Callable[[int], None]) -> Tensor:
    """Rows in the order of their picks."""
    budget = task.problem.budget
    return dense_lazy_greedy(
        task.documents_ND,
        task.references_R,
        task.linear_N,
        task.weight,
        budget.groups_N[task.order_N],
        tuple(int(limit) for limit in budget.limits),
        task.problem.workers,
        report,
    )
