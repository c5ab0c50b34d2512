"""Annealed masks along a graph, several side by side. Knows no metric, no policy and no bound.

At a temperature a document is in or out by chance, in the likelier the more it adds to the others above a price. The
price of each group follows its number of documents; the temperature falls until a document is in where it adds more than
the price. Documents that share no edge are drawn at once.

Source: Kirkpatrick, Gelatt and Vecchi 1983 (simulated annealing), by the heat bath of Glauber 1963.
Cost: one look along the edges a sweep and a mask.

Shape suffixes: N documents, n documents of a colour, R masks, G groups.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.graph.objective import GraphObjective, Mask, Numbers

HOT, COLD = 0.3, 0.01
"""The first and the last temperature, of the spread of what documents add to the mask where it begins."""
PULL = 0.5
"""How far a price moves, in temperatures, where a group has twice its number."""


def annealed(
    objective: GraphObjective,
    budget: Budget,
    mask_N: Mask,
    *,
    num_masks: int,
    num_sweeps: int,
    draws: np.random.Generator,
) -> NDArray[np.bool_]:
    """Masks whose groups have about their numbers: bool of shape (R, N).

    Args:
        objective: What is maximised.
        budget: Of documents.
        mask_N: Where all begin.
        num_masks: R.
        num_sweeps: How often each document is drawn.
        draws: Of whether documents are in.
    """
    taken_NN = objective.taken_NN.astype(np.float32)
    parts = [(rows_n, taken_NN[rows_n]) for rows_n in _apart(taken_NN)]
    groups_N, limits_G = budget.groups_N.numpy(), np.array(budget.limits)
    marginals_N = objective.marginals(mask_N)
    in_group_GN = csr_array((np.ones(len(mask_N)), (groups_N, np.arange(len(mask_N)))))
    members = [np.flatnonzero(groups_N == group) for group in range(len(limits_G))]
    price_GR = np.array([[_price(marginals_N[rows_n], mask_N[rows_n])] * num_masks for rows_n in members])
    masks_NR = np.repeat(mask_N[:, None], num_masks, axis=1).astype(np.float32)
    spread = float(marginals_N.std())
    for temperature in spread * np.geomspace(HOT, COLD, num_sweeps):
        chance_NR = draws.random(masks_NR.shape, dtype=np.float32)
        with np.errstate(divide="ignore"):
            least_NR = temperature * np.log(chance_NR / (1 - chance_NR))
        for rows_n, taken_nN in parts:
            gains_nR = objective.linear_N[rows_n, None] - taken_nN @ masks_NR - price_GR[groups_N[rows_n]]
            masks_NR[rows_n] = gains_nR > least_NR[rows_n]
        surplus_GR = (in_group_GN @ masks_NR - limits_G[:, None]) / np.maximum(1, limits_G)[:, None]
        price_GR = price_GR + PULL * temperature * surplus_GR
    found_RN: NDArray[np.bool_] = np.ascontiguousarray(masks_NR.T > 0)
    return found_RN


def _apart(taken_NN: csr_array) -> list[NDArray[np.int64]]:
    """Documents by colour, no two of one colour neighbours: each, those of most neighbours first, the first colour free."""
    starts, places = taken_NN.indptr.tolist(), taken_NN.indices
    colours_N = np.full(taken_NN.shape[0], -1)
    for row in np.argsort(-np.diff(taken_NN.indptr), kind="stable").tolist():
        used = set(colours_N[places[starts[row] : starts[row + 1]]].tolist())
        colours_N[row] = next(colour for colour in range(len(used) + 1) if colour not in used)
    return [np.flatnonzero(colours_N == colour) for colour in range(colours_N.max() + 1)]


def _price(marginals_n: Numbers, mask_n: Mask) -> float:
    """What lies between the least that a group's document of the mask adds and the most that another of it would."""
    least = float(marginals_n[mask_n].min(initial=np.inf))
    return (least + float(marginals_n[~mask_n].max(initial=-np.inf))) / 2
