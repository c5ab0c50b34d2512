"""GIST: quality plus the smallest distance between two picks. Knows no learner or normalisation.

All maximise ``sum of linear_i over the picks + scale * smallest Euclidean distance of two picks`` over sets of at most
the budget, by Fahrbach et al. 2025 (arXiv 2405.18754): greedy, the two documents furthest apart, and for each of a
geometric row of thresholds greedy among documents that far from all picks. The best of them counts. linear_i is at
least 0. By the paper's convention one document alone has the diameter for its distance; here, as in gist-select, it
counts only where the budget is 1.

Shape suffixes: N documents, D dimensions, T thresholds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import Task

Rows = NDArray[np.int64]


def gist_select(task: Task, eps: float = 0.05, seed: int = 0) -> Rows:
    """Picks of the package gist-select, which estimates the diameter by ten scans; they may be fewer than the budget."""
    from gist import EuclideanDistance, LinearUtility, gist  # type: ignore[import-not-found, unused-ignore]

    rows_ND = task.embeddings_ND.astype(np.float32)
    utility, distance = LinearUtility(task.linear_N), EuclideanDistance()
    found = gist(rows_ND, utility, distance, k=task.budget, lam=task.scale, eps=eps, seed=seed)
    return np.asarray(found.indices, dtype=np.int64)


def dense(task: Task, eps: float = 0.05, *, exactly: bool = False) -> Rows:
    """Picks of the method as published, with the exact diameter, on all squared distances at once (``4 N^2`` bytes).

    A linear utility's greedy takes documents in the order of linear_i, which is sorted once.

    Args:
        task: What to maximise.
        eps: The step of the thresholds: 32 at 0.1, 76 at 0.05.
        exactly: Count only sets of the whole budget. The method itself takes smaller ones.
    """
    order_N = np.argsort(-task.linear_N, kind="stable")
    linear_N = task.linear_N[order_N]
    squared_NN = _squared_distances(task.embeddings_ND[order_N])
    num = len(order_N)
    budget = min(task.budget, num)
    furthest = divmod(int(squared_NN.argmax()), num)
    diameter = float(squared_NN[furthest]) ** 0.5

    def value(places: Rows) -> float:
        distance = _smallest(squared_NN, places) if len(places) > 1 else diameter
        return float(linear_N[places].sum()) + task.scale * distance

    best = np.arange(budget)
    highest = value(best)
    sets = [np.array(furthest)] if budget == 2 or (budget > 2 and not exactly) else []
    for threshold in _thresholds(diameter, eps):
        places = _independent(squared_NN, np.float32(threshold**2), budget)
        if len(places) < (budget if exactly else 2):
            break  # a larger threshold leaves fewer
        sets.append(places)
    for places in sets:
        if (reached := value(places)) > highest:
            best, highest = places, reached
    return order_N[best]


def value_of(task: Task, picks: Rows) -> float:
    """The objective in float64, of two picks or more."""
    rows_PD = task.embeddings_ND[picks].astype(np.float64)
    squared_P = np.einsum("pd,pd->p", rows_PD, rows_PD)
    squared_PP = squared_P[:, None] + squared_P - 2 * rows_PD @ rows_PD.T
    np.fill_diagonal(squared_PP, np.inf)
    return float(task.linear_N[picks].sum() + task.scale * np.sqrt(max(squared_PP.min(), 0.0)))


def _squared_distances(embeddings_ND: NDArray[np.float16]) -> NDArray[np.float32]:
    rows_ND = embeddings_ND.astype(np.float32)
    squared_N = np.einsum("nd,nd->n", rows_ND, rows_ND)
    squared_NN: NDArray[np.float32] = rows_ND @ rows_ND.T
    squared_NN *= -2
    squared_NN += squared_N
    squared_NN += squared_N[:, None]
    np.fill_diagonal(squared_NN, 0)
    return np.maximum(squared_NN, 0, out=squared_NN)


def _thresholds(diameter: float, eps: float) -> NDArray[np.float64]:
    """``(1 + eps)^i eps diameter / 2`` for as long as ``(1 + eps)^i`` is at most ``2 / eps``, shape (T,)."""
    steps = np.arange(int(np.log(2 / eps) / np.log1p(eps)) + 1)
    return (1 + eps) ** steps * eps * diameter / 2 if diameter > 0 else np.empty(0)


def _independent(squared_NN: NDArray[np.float32], least: np.float32, most: int) -> Rows:
    """Places in the order of linear_i, each at least so far from all before it."""
    free_N = np.ones(len(squared_NN), dtype=bool)
    places: list[int] = []
    place = 0
    while len(places) < most and free_N[place]:
        places.append(place)
        np.logical_and(free_N, squared_NN[place] >= least, out=free_N)
        free_N[place] = False
        place += int(free_N[place:].argmax())
    return np.array(places, dtype=np.int64)


def _smallest(squared_NN: NDArray[np.float32], places: Rows) -> float:
    """The smallest distance of two of them."""
    among = squared_NN[np.ix_(places, places)]
    np.fill_diagonal(among, np.inf)
    return float(among.min()) ** 0.5
