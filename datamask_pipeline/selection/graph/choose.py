"""The learner for one metric along a graph. Knows no input format and no report.

Shape suffixes: N documents, E edges.

Greedy by lazily updated gains, then exchanges of one document for another, the best of all first, until none gains; then
exchanges of masks that were annealed from there, and of masks of few documents that a part of the best was drawn anew of.
"""

from __future__ import annotations

import numpy as np
import torch

from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.graph.annealing import annealed
from datamask_pipeline.selection.graph.cliques import cliques_of
from datamask_pipeline.selection.graph.exchanges import exchanged, filled, kicked
from datamask_pipeline.selection.graph.greedy import greedy_mask
from datamask_pipeline.selection.graph.objective import GraphObjective, Mask
from datamask_pipeline.selection.policies.datamask import DataMaskConfig
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.seeds import generator
from datamask_pipeline.selection.solution import Solution

CHEAPER, MOST_BOUNDED = 50, 2_000_000_000
"""Times the steps of metrics whose every step reads all vectors, and the members of cliques that all of them may look at."""
MASKS_EACH = 4
"""Masks annealed side by side for each restart that is allowed."""
MOST_MASKS, MOST_SWEEPS, SWEEPS_EACH, MOST_ANNEALED = 128, 4_000, 7, 5_000_000_000
"""Masks in all; how often each document of one is drawn, by the number of documents where these are few;
and the ends of edges and documents that all that may look at: in large blocks there are fewer masks, then fewer sweeps."""
KICKED, LEAST_KICKED, MOST_KICKS = 0.1, 4, 20_000_000
"""Share of a mask that is drawn anew, every second time so many at least: a mask of few is drawn anew as a whole. And
edges and documents that all such turns may look at, once for each document drawn."""


def choose_on_graph(problem: Problem, objective: GraphObjective, config: DataMaskConfig) -> Solution:
    """Greedy and exchanges, again and again from part of the best mask; and the bound that is found below it.

    Args:
        problem: What is to be chosen; its budget counts documents.
        objective: Of the problem.
        config: How far.
    """
    budget, cliques = problem.budget, cliques_of(objective.graph)
    num_steps = min(CHEAPER * config.num_steps, MOST_BOUNDED // max(1, len(cliques.rows_M)))
    mask_N = greedy_mask(objective, budget)
    if config.num_swap_rounds:
        mask_N = exchanged(objective, budget, mask_N)
        at_once = objective.bound(cliques, objective.slopes(cliques, mask_N, 1.0), budget)
        if problem.gap(at_once, objective.value(mask_N)) > config.gap_tolerance:
            mask_N = _annealed_and_exchanged(objective, budget, mask_N, config)
            mask_N = _kicked_and_exchanged(objective, budget, mask_N, config)
    value = objective.value(mask_N)

    def near_enough(step: int, bound: float) -> bool:
        gap = max(0.0, problem.gap(bound, value))
        problem.report({"step": step, "num_steps": num_steps, "objective": value, "bound": bound, "gap": gap})
        return gap <= config.gap_tolerance

    bound, slopes_C = objective.smallest_bound(cliques, mask_N, budget, num_steps, near_enough)
    return Solution(
        mask_N=torch.from_numpy(mask_N),
        scores_N=torch.from_numpy(objective.marginals(mask_N)),
        bound=bound,
        cliques=(cliques, slopes_C),
        method="cliques: the edges inside of one count at least what its slope says, maximised over all masks",
        notes={"edges": len(objective.graph.left_E), "cliques": len(cliques.weight_C)},
    )


def _annealed_and_exchanged(
    objective: GraphObjective, budget: Budget, best_N: Mask, config: DataMaskConfig
) -> Mask:
    """The best of a mask and of what exchanges end at from masks that were annealed from it."""
    sweeps = MOST_ANNEALED // (len(best_N) + 2 * len(objective.graph.left_E))
    num_sweeps = min(MOST_SWEEPS, SWEEPS_EACH * len(best_N), sweeps)
    num_masks = min(MOST_MASKS, MASKS_EACH * config.num_restarts, sweeps // max(1, num_sweeps))
    if num_masks == 0:
        return best_N
    masks_RN = annealed(
        objective,
        budget,
        best_N,
        num_masks=num_masks,
        num_sweeps=num_sweeps,
        draws=_draws(budget, "annealing"),
    )
    ends = [exchanged(objective, budget, filled(objective, budget, mask_N)) for mask_N in masks_RN]
    return max([best_N, *ends], key=objective.value)


def _kicked_and_exchanged(
    objective: GraphObjective, budget: Budget, best_N: Mask, config: DataMaskConfig
) -> Mask:
    """The best of a mask and of what exchanges end at from it, where some documents of each group are drawn anew."""
    best, draws = objective.value(best_N), _draws(budget, "kicks")
    size = len(best_N) + len(objective.graph.left_E)
    share = max(1, round(KICKED * int(best_N.sum())))
    for turn in range(min(config.num_kicks, MOST_KICKS // (size * share))):
        count = max(share, LEAST_KICKED) if turn % 2 else share
        mask_N = exchanged(objective, budget, kicked(budget, best_N, count, draws))
        value = objective.value(mask_N)
        if value > best:
            best_N, best = mask_N, value
    return best_N


def _draws(budget: Budget, name: str) -> np.random.Generator:
    seed = torch.randint(2**62, (1,), generator=generator(budget.seed, "graph", name))
    return np.random.default_rng(int(seed))
