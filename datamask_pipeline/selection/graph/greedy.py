"""Greedy along a graph. Knows no exchange, relaxation or report.

Shape suffixes: N documents, n neighbours of one.
"""

from __future__ import annotations

import heapq

import numpy as np
import torch

from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.graph.objective import GraphObjective, Mask
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.seeds import generator
from datamask_pipeline.selection.solution import Solution


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
    starts_N, places, taken = (
        objective.taken_NN.indptr.tolist(),
        objective.taken_NN.indices,
        objective.taken_NN.data,
    )
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
        span = slice(starts_N[row], starts_N[row + 1])
        gains_N[places[span]] -= taken[span]
    return mask_N
