"""The learner for one metric along a graph. Knows no input format and no report.

Shape suffixes: N documents, E edges.

Greedy by lazily updated gains, then exchanges of one document for another, the best of all first, until none gains; then
the same from masks that a part of the best one was drawn anew of.
"""

from __future__ import annotations

import heapq

import numpy as np
import torch
from numpy.typing import NDArray

from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.graph.objective import GraphObjective, Numbers
from datamask_pipeline.selection.policies.datamask import DataMaskConfig
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.seeds import generator
from datamask_pipeline.selection.solution import Solution

CHEAPER = 10
"""Times the steps of metrics whose every step reads all vectors."""
LEAST_GAIN = 1e-12
"""Of an exchange, as a share of the largest marginal."""
KICKED, LEAST_KICKED, MOST_WORK = 0.1, 4, 20_000_000
"""Share of a mask that is drawn anew, every second time so many at least: a mask of few is drawn anew as a whole. And
edges and documents that all such turns may look at, once for each document drawn."""

Mask = NDArray[np.bool_]


def choose_on_graph(problem: Problem, objective: GraphObjective, config: DataMaskConfig) -> Solution:
    """Greedy and exchanges, again and again from part of the best mask; and the bound that is found below it.

    Args:
        problem: What is to be chosen; its budget counts documents.
        objective: Of the problem.
        config: How far.
    """
    budget, num_steps = problem.budget, CHEAPER * config.num_steps
    mask_N = greedy_mask(objective, budget)
    if config.num_swap_rounds:
        mask_N = _kicked_and_exchanged(objective, budget, exchanged(objective, budget, mask_N), config)
    value = objective.value(mask_N)

    def near_enough(step: int, bound: float) -> bool:
        gap = max(0.0, problem.gap(bound, value))
        problem.report({"step": step, "num_steps": num_steps, "objective": value, "bound": bound, "gap": gap})
        return gap <= config.gap_tolerance

    shares_N = mask_N.astype(np.float64)
    bound, shares_N = objective.smallest_bound(shares_N, budget, value, num_steps, near_enough)
    return Solution(
        mask_N=torch.from_numpy(mask_N),
        scores_N=torch.from_numpy(objective.marginals(mask_N)),
        bound=bound,
        dual_N=torch.from_numpy(shares_N),
        method="pairs: an edge takes at least what its dual shares say of both ends, maximised over all masks",
        notes={"edges": len(objective.graph.left_E)},
    )


def greedy_solution(problem: Problem, objective: GraphObjective) -> Solution:
    """Policy ``greedy``."""
    mask_N = greedy_mask(objective, problem.budget)
    return Solution(mask_N=torch.from_numpy(mask_N), scores_N=torch.from_numpy(objective.marginals(mask_N)))


def greedy_mask(objective: GraphObjective, budget: Budget) -> Mask:
    """Documents by the largest gain, of equal ones by lot, until each group has its number.

    Gains only fall, so one is computed again when it comes to the top.
    """
    linear_N, groups_N = objective.linear_N, budget.groups_N.numpy()
    left = [int(limit) for limit in budget.limits]
    lots_N = torch.randperm(len(linear_N), generator=generator(budget.seed, "greedy")).tolist()
    neighbours = _Neighbours(objective)
    gains_N = linear_N.copy()
    heap = [(-gain, lot, row) for row, (gain, lot) in enumerate(zip(gains_N.tolist(), lots_N, strict=True))]
    heapq.heapify(heap)
    mask_N, missing = np.zeros(len(linear_N), bool), sum(left)
    while missing:
        known, lot, row = heapq.heappop(heap)
        group = int(groups_N[row])
        if left[group] == 0:
            continue
        gain = float(gains_N[row])
        if gain < -known:
            heapq.heappush(heap, (-gain, lot, row))
            continue
        mask_N[row], left[group], missing = True, left[group] - 1, missing - 1
        places_n, taken_n = neighbours.of(row)
        gains_N[places_n] -= taken_n
    return mask_N


def exchanged(objective: GraphObjective, budget: Budget, mask_N: Mask) -> Mask:
    """The mask after exchanges of two documents of a group, the best of all such first, until none raises the objective."""
    graph, groups_N = objective.graph, budget.groups_N.numpy()
    members = [np.flatnonzero(groups_N == group) for group in range(len(budget.limits))]
    mask_N = mask_N.copy()
    marginals_N = objective.marginals(mask_N)
    neighbours = _Neighbours(objective)
    # Where both ends are of one group, an exchange along an edge is worth that edge more.
    same_E = groups_N[graph.left_E] == groups_N[graph.right_E]
    left_E, right_E = graph.left_E[same_E], graph.right_E[same_E]
    taken_E = objective.weight * graph.similarity_E[same_E]
    least = LEAST_GAIN * float(np.abs(marginals_N).max(initial=0.0))
    while True:
        gain, out, into = max(
            [_best_apart(marginals_N, mask_N, rows_n) for rows_n in members]
            + [_best_along(marginals_N, mask_N, left_E, right_E, taken_E)]
        )
        if gain <= least:
            return mask_N
        mask_N[out], mask_N[into] = False, True
        for row, sign in ((out, 1.0), (into, -1.0)):
            places_n, taken_n = neighbours.of(row)
            marginals_N[places_n] += sign * taken_n


def _kicked_and_exchanged(
    objective: GraphObjective, budget: Budget, best_N: Mask, config: DataMaskConfig
) -> Mask:
    """The best of a mask and of what exchanges end at from it, where some documents of each group are drawn anew."""
    best, groups_N = objective.value(best_N), budget.groups_N.numpy()
    size = len(best_N) + len(objective.graph.left_E)
    share = max(1, round(KICKED * int(best_N.sum())))
    for turn in range(min(config.num_kicks, MOST_WORK // (size * share))):
        kicked = max(share, LEAST_KICKED) if turn % 2 else share
        lots_N = torch.rand(len(best_N), generator=generator(budget.seed, "graph", turn)).double().numpy()
        mask_N = best_N.copy()
        inside = np.flatnonzero(best_N)
        for out in inside[np.argsort(lots_N[inside])[:kicked]]:
            others_N = (groups_N == groups_N[out]) & ~mask_N & ~best_N
            if others_N.any():
                mask_N[out], mask_N[np.where(others_N, lots_N, -1.0).argmax()] = False, True
        mask_N = exchanged(objective, budget, mask_N)
        value = objective.value(mask_N)
        if value > best + LEAST_GAIN * abs(best):
            best_N, best = mask_N, value
    return best_N


Exchange = tuple[float, int, int]
"""What it gains, or at least that; who goes; who comes."""
NONE: Exchange = (-np.inf, -1, -1)


def _best_apart(marginals_N: Numbers, mask_N: Mask, rows_n: NDArray[np.int64]) -> Exchange:
    """The best of a group as if no two shared an edge."""
    inside_n = mask_N[rows_n]
    if inside_n.all() or not inside_n.any():
        return NONE
    out = int(rows_n[np.where(inside_n, marginals_N[rows_n], np.inf).argmin()])
    into = int(rows_n[np.where(inside_n, -np.inf, marginals_N[rows_n]).argmax()])
    return float(marginals_N[into] - marginals_N[out]), out, into


def _best_along(
    marginals_N: Numbers,
    mask_N: Mask,
    left_E: NDArray[np.int64],
    right_E: NDArray[np.int64],
    taken_E: Numbers,
) -> Exchange:
    """The best of those along an edge: who comes has one selected neighbour less."""
    into_left_E, into_right_E = ~mask_N[left_E] & mask_N[right_E], mask_N[left_E] & ~mask_N[right_E]
    if not (into_left_E.any() or into_right_E.any()):
        return NONE
    rise_E = marginals_N[left_E] - marginals_N[right_E]
    gains_E = np.where(into_left_E, rise_E, np.where(into_right_E, -rise_E, -np.inf)) + taken_E
    edge = int(gains_E.argmax())
    left, right = int(left_E[edge]), int(right_E[edge])
    return float(gains_E[edge]), *((right, left) if into_left_E[edge] else (left, right))


class _Neighbours:
    """Each document's edges side by side."""

    def __init__(self, objective: GraphObjective) -> None:
        graph = objective.graph
        ends_e = np.concatenate([graph.left_E, graph.right_E])
        order_e = np.argsort(ends_e, kind="stable")
        self._places_e = np.concatenate([graph.right_E, graph.left_E])[order_e]
        self._taken_e = objective.weight * np.concatenate([graph.similarity_E] * 2)[order_e]
        self._starts_N = np.searchsorted(ends_e[order_e], np.arange(graph.num_rows + 1)).tolist()

    def of(self, row: int) -> tuple[NDArray[np.int64], Numbers]:
        """A document's neighbours, and what it takes from each where it is selected."""
        span = slice(self._starts_N[row], self._starts_N[row + 1])
        return self._places_e[span], self._taken_e[span]
