"""Blocks of clusters, objectives along their graphs, and every mask of them. Holds no test."""

import itertools

import numpy as np
import torch

from datamask_pipeline.diversity.pair_graph import nearest_graph
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.graph.objective import GraphObjective


def block(size: int, dim: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng(seed)
    centres = draws.standard_normal((max(2, size // 12), dim))
    rows = centres[draws.integers(0, len(centres), size)] + 0.6 * draws.standard_normal((size, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), draws.random(size)


def posed(
    size: int, seed: int, count: int, *, groups: int = 1, lamb: float = 0.4
) -> tuple[GraphObjective, Budget, np.ndarray]:
    """An objective, its budget, and the matrix of similarities."""
    rows, quality = block(size, 6, seed)
    graph = nearest_graph(torch.from_numpy(rows), 4)
    known = np.zeros((size, size))
    known[graph.left_E, graph.right_E] = known[graph.right_E, graph.left_E] = graph.similarity_E
    limits = [count // groups + (group < count % groups) for group in range(groups)]
    budget = Budget(
        costs_N=torch.ones(size, dtype=torch.float64),
        groups_N=torch.arange(size) % groups,
        limits=tuple(map(float, limits)),
        tokens=False,
        seed=seed,
    )
    objective = GraphObjective(
        graph=graph, linear_N=lamb * quality / count, weight=2 * (1 - lamb) / count, offset=0.3
    )
    return objective, budget, known


def worth(objective: GraphObjective, known: np.ndarray, mask: np.ndarray) -> float:
    inside = np.ix_(mask, mask)
    return float(
        objective.offset + objective.linear_N[mask].sum() - objective.weight / 2 * known[inside].sum()
    )


def every(budget: Budget) -> list[np.ndarray]:
    groups = budget.groups_N.numpy()
    parts = [
        itertools.combinations(np.flatnonzero(groups == group), int(limit))
        for group, limit in enumerate(budget.limits)
    ]
    masks = []
    for chosen in itertools.product(*map(list, parts)):
        mask = np.zeros(len(groups), bool)
        mask[list(itertools.chain(*chosen))] = True
        masks.append(mask)
    return masks
