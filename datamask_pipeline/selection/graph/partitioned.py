"""Greedy in random partitions, round by round, of what bounding leaves open. Knows no relaxation.

Adaptive partitions are as large in each round as in the first, and so are fewer the less is left.

Shape suffixes: N documents, n of a partition.

Source: Boether et al. 2025 (arXiv 2402.16442), multi-round partitioned greedy with exact bounding before it.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from datamask_pipeline.selection.budget import Budget, shared_out
from datamask_pipeline.selection.graph.bounding import bounded
from datamask_pipeline.selection.graph.greedy import greedy_mask
from datamask_pipeline.selection.graph.objective import GraphObjective
from datamask_pipeline.selection.policies.partitioned_greedy import PartitionedGreedyConfig
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.seeds import generator
from datamask_pipeline.selection.solution import Solution

Rows = NDArray[np.int64]


def choose_in_partitions(problem: Problem, config: PartitionedGreedyConfig) -> Solution:
    """The union of what greedy takes of each partition in the last round, and of what is surely in."""
    objective, budget = GraphObjective.of(problem), problem.budget
    assert objective is not None, "checked before any work"
    groups_N = budget.groups_N.numpy()
    inside_N, outside_N = np.zeros(len(groups_N), bool), np.zeros(len(groups_N), bool)
    if config.bounding:
        inside_N, outside_N = bounded(objective, budget)
    gains_N = objective.marginals(inside_N)
    room_G = [
        int(limit) - int(inside_N[groups_N == group].sum()) for group, limit in enumerate(budget.limits)
    ]
    open_n = np.flatnonzero(~inside_N & ~outside_N & (np.array(room_G)[groups_N] > 0))
    sizes_G = np.bincount(groups_N[open_n], minlength=len(budget.limits))
    most = max(1, math.ceil(len(open_n) / config.num_partitions))
    for turn in range(1, config.num_rounds + 1):
        left = 1 - turn / config.num_rounds
        wanted_G = [room + round((size - room) * left) for room, size in zip(room_G, sizes_G, strict=True)]
        draws = generator(budget.seed, "partitions", turn)
        shuffled_n = open_n[torch.randperm(len(open_n), generator=draws).numpy()]
        count = config.num_partitions
        if config.adaptive:
            count = max(1, min(count, math.ceil(len(open_n) / most)))
        parts = [np.sort(rows_n) for rows_n in np.array_split(shuffled_n, count)]
        open_n = np.sort(np.concatenate(_greedy_of_each(objective, budget, gains_N, parts, wanted_G)))
        problem.report({"step": turn, "num_steps": config.num_rounds})
    mask_N = inside_N.copy()
    mask_N[open_n] = True
    return Solution(
        mask_N=torch.from_numpy(mask_N),
        scores_N=torch.from_numpy(objective.marginals(mask_N)),
        notes={"surely_in": int(inside_N.sum()), "surely_out": int(outside_N.sum())},
    )


def _greedy_of_each(
    objective: GraphObjective,
    budget: Budget,
    gains_N: NDArray[np.float64],
    parts: list[Rows],
    wanted_G: list[int],
) -> list[Rows]:
    """What greedy takes of each partition, which knows edges inside of it alone."""
    groups_N, graph = budget.groups_N.numpy(), objective.graph
    there_PG = [np.bincount(groups_N[rows_n], minlength=len(wanted_G)) for rows_n in parts]
    limits_GP = []
    for group, wanted in enumerate(wanted_G):
        there_P = [int(there_G[group]) for there_G in there_PG]
        shares = [wanted * there / max(1, sum(there_P)) for there in there_P]
        limits_GP.append(shared_out(shares, wanted, there_P))
    taken = []
    for number, rows_n in enumerate(parts):
        place_N = np.full(len(groups_N), -1)
        place_N[rows_n] = np.arange(len(rows_n))
        within_E = (place_N[graph.left_E] >= 0) & (place_N[graph.right_E] >= 0)
        part = GraphObjective(
            graph=graph.within(place_N, within_E, len(rows_n)),
            linear_N=gains_N[rows_n],
            weight=objective.weight,
            offset=0.0,
        )
        own = Budget(
            costs_N=budget.costs_N[rows_n],
            groups_N=budget.groups_N[rows_n],
            limits=tuple(float(limits_P[number]) for limits_P in limits_GP),
            tokens=False,
            seed=budget.seed,
        )
        taken.append(rows_n[greedy_mask(part, own)])
    return taken
