"""Annealed masks along a graph, several side by side. Knows no metric, no policy and no bound.

At a temperature a document is in or out by chance, in the likelier the more it adds to the others above a price. The
price of each group follows its number of documents; the temperature falls until a document is in where it adds more than
the price. Documents that share no edge are drawn at once.

Source: Kirkpatrick, Gelatt and Vecchi 1983 (simulated annealing), by the heat bath of Glauber 1963.
Cost: one look along the edges a sweep and a mask.

Shape suffixes: N documents, by colour inside of `annealed`, n documents of a colour, R masks, G groups.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.graph.objective import GraphObjective, Mask, Numbers

HOT, COLD = 0.2, 0.02
"""The first and the last temperature, of the spread of what documents add to the mask where it begins."""
PULL = 0.5
"""How far a price moves, in temperatures, where a group has twice its number."""
CHANCES = 1 << 20
"""Numbers that are drawn once; every colour of every sweep reads as many as it needs from a place that is drawn."""


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
    order_N, ends = _by_colour(objective.taken_NN)
    taken_NN = objective.taken_NN.astype(np.float32)[order_N][:, order_N]
    parts = [(slice(start, end), taken_NN[start:end]) for start, end in pairwise(ends)]
    groups_N, limits_G1 = budget.groups_N.numpy(), np.array(budget.limits, np.float32)[:, None]
    marginals_N = objective.marginals(mask_N)
    prices = [
        _price(marginals_N[groups_N == group], mask_N[groups_N == group]) for group in range(len(limits_G1))
    ]
    price_GR = np.repeat(np.array(prices, np.float32)[:, None], num_masks, axis=1)
    groups_N, linear_N1 = groups_N[order_N], objective.linear_N[order_N, None].astype(np.float32)
    shape = len(limits_G1), len(mask_N)
    in_group_GN = csr_array(
        (np.ones(len(mask_N), np.float32), (groups_N, np.arange(len(mask_N)))), shape=shape
    )
    masks_NR = np.repeat(mask_N[order_N, None], num_masks, axis=1).astype(np.float32)
    chances = draws.logistic(size=CHANCES + masks_NR.size).astype(np.float32)
    places = draws.integers(CHANCES, size=(num_sweeps, len(parts))).tolist()
    temperatures = (float(marginals_N.std()) * np.geomspace(HOT, COLD, num_sweeps)).astype(np.float32)
    for temperature, starts in zip(temperatures, places, strict=True):
        added_NR = linear_N1 - price_GR[groups_N]
        for (rows, taken_nN), start in zip(parts, starts, strict=True):
            gains_nR = added_NR[rows] - taken_nN @ masks_NR
            least_nR = chances[start : start + gains_nR.size].reshape(gains_nR.shape)
            masks_NR[rows] = gains_nR > temperature * least_nR
        surplus_GR = (in_group_GN @ masks_NR - limits_G1) / np.maximum(1, limits_G1)
        price_GR = price_GR + PULL * temperature * surplus_GR
    found_RN = np.empty((num_masks, len(mask_N)), bool)
    found_RN[:, order_N] = masks_NR.T > 0
    return found_RN


def _by_colour(taken_NN: csr_array) -> tuple[NDArray[np.int64], list[int]]:
    """Documents by colour, no two of one colour neighbours, and where each colour's begin and end.

    Those of most neighbours come first, and take the first colour that is free.
    """
    starts, places = taken_NN.indptr.tolist(), taken_NN.indices
    colours_N = np.full(taken_NN.shape[0], -1)
    for row in np.argsort(-np.diff(starts), kind="stable").tolist():
        used = set(colours_N[places[starts[row] : starts[row + 1]]].tolist())
        colours_N[row] = next(colour for colour in range(len(used) + 1) if colour not in used)
    ends = np.cumsum(np.bincount(colours_N)).tolist()
    return np.argsort(colours_N, kind="stable"), [0, *ends]


def _price(marginals_n: Numbers, mask_n: Mask) -> float:
    """What lies between the least that a group's document of the mask adds and the most that another of it would."""
    least = float(marginals_n[mask_n].min(initial=np.inf))
    return (least + float(marginals_n[~mask_n].max(initial=-np.inf))) / 2
