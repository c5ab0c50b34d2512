"""Documents along a graph that every best mask has, or none has. Knows no learner.

Shape suffixes: N documents, n of a group that are open.

What an open document adds to a mask lies between two utilities: with all open neighbours selected, and with none but
those that are surely in. Whoever adds less at most than as many others as there is room for add at least is in no best
mask; whoever adds more at least than the last of as many adds at most is in all. Either changes what neighbours add, and
so on.

Source: Boether et al. 2025 (arXiv 2402.16442), exact bounding; here within each group of the budget.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.graph.objective import GraphObjective

CLEAR = 1e-12
"""Of the largest utility: what rounding may tell two apart by."""

Mask = NDArray[np.bool_]


def bounded(objective: GraphObjective, budget: Budget) -> tuple[Mask, Mask]:
    """Who is surely in, and who surely out.

    Args:
        objective: The objective.
        budget: Of documents.
    """
    groups_N = budget.groups_N.numpy()
    inside_N, outside_N = np.zeros(len(groups_N), bool), np.zeros(len(groups_N), bool)
    clear = CLEAR * float(np.abs(objective.linear_N).max(initial=0.0) + objective.weight)
    while True:
        most_N, least_N = objective.marginals(inside_N), objective.marginals(~outside_N)
        known = inside_N.sum() + outside_N.sum()
        for group, limit in enumerate(budget.limits):
            open_n = np.flatnonzero((groups_N == group) & ~inside_N & ~outside_N)
            room = int(limit) - int(inside_N[groups_N == group].sum())
            if room == 0 or len(open_n) == 0:
                outside_N[open_n] = True
                continue
            if room >= len(open_n):
                inside_N[open_n] = True
                continue
            last_most, last_least = (
                np.partition(utility_N[open_n], len(open_n) - room)[len(open_n) - room]
                for utility_N in (most_N, least_N)
            )
            inside_N[open_n] |= least_N[open_n] > last_most + clear
            outside_N[open_n] |= most_N[open_n] < last_least - clear
        if inside_N.sum() + outside_N.sum() == known:
            return inside_N, outside_N
