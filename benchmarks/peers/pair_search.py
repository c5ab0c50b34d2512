"""The best sets along a graph that money can buy: exchanges, and annealing. Knows no learner or normalisation.

The objective is `pair_graph`'s. Beside a set stand the gains of all documents: a document's own term less what its edges
to the picks cost, for a pick as well. An exchange of u for v gains ``gain_v - gain_u + cost_uv``.

Shape suffixes: N documents, P picks, C cut edges, X exchanges, L documents of one colour, R replicas.
"""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from benchmarks.peers.pair_graph import Doubles, GraphTask, Rows, edges_of, greedy_along

LEAST = 1e-13
REPLICAS_TIMES_DOCUMENTS = 40_000
NOISES = 1 << 20
HOTTEST, COLDEST = 0.3, 0.02


def greedy_with_exchanges(task: GraphTask) -> Rows:
    """Rows that no single exchange betters, ascending."""
    costs = task.costs()
    return exchanged(costs, task.linear_N, greedy_along(costs, task.linear_N, task.budget))


def exchanged(costs: csr_array, linear_N: Doubles, picks: Rows) -> Rows:
    """Exchange picks until no exchange gains: in rounds, best first, each if it still gains anything."""
    picked_N = np.zeros(len(linear_N), dtype=bool)
    picked_N[picks] = True
    gains_N = linear_N - costs @ picked_N
    indptr, indices, data = costs.indptr, costs.indices, costs.data
    while True:
        out_X, in_X = _gaining(costs, picked_N, gains_N)
        if not len(out_X):
            return np.flatnonzero(picked_N)
        for out, into in zip(out_X.tolist(), in_X.tolist(), strict=True):
            if not picked_N[out] or picked_N[into]:
                continue
            leaving = slice(indptr[out], indptr[out + 1])
            between = data[leaving][indices[leaving] == into].sum()
            if gains_N[into] - gains_N[out] + between <= LEAST:
                continue
            joining = slice(indptr[into], indptr[into + 1])
            gains_N[indices[leaving]] += data[leaving]
            gains_N[indices[joining]] -= data[joining]
            picked_N[[out, into]] = False, True


def _gaining(costs: csr_array, picked_N: NDArray[np.bool_], gains_N: Doubles) -> tuple[Rows, Rows]:
    """Exchanges that gain, best first: all along cut edges, and the i-th worst pick for the i-th best other."""
    picks, others = np.flatnonzero(picked_N), np.flatnonzero(~picked_N)
    edges, from_ = edges_of(costs, picks)
    cut = ~picked_N[costs.indices[edges]]
    out_C, in_C, cost_C = (
        picks[from_[cut]],
        costs.indices[edges[cut]].astype(np.int64),
        costs.data[edges[cut]],
    )
    others = others[gains_N[others] > gains_N[picks].min(initial=np.inf)]
    picks = picks[gains_N[picks] < gains_N[others].max(initial=-np.inf)]
    most = min(len(picks), len(others))
    out_X = np.concatenate([out_C, picks[np.argsort(gains_N[picks], kind="stable")[:most]]])
    in_X = np.concatenate([in_C, others[np.argsort(-gains_N[others], kind="stable")[:most]]])
    gain_X = gains_N[in_X] - gains_N[out_X]
    gain_X[: len(cost_C)] += cost_C
    order_X = np.argsort(-gain_X, kind="stable")[: int((gain_X > LEAST).sum())]
    return out_X[order_X], in_X[order_X]


def annealing(task: GraphTask, seconds: float = 10.0, seed: int = 0) -> Rows:
    """The best of `greedy_with_exchanges` and of some replicas, annealed together, then exchanged; ascending.

    Documents of one colour have no edges among them, so that all are drawn at once: each is in with the odds
    ``exp((gain - price) / temperature)``. A replica's price follows its size, so that it ends near the budget.
    """
    rng = np.random.default_rng(seed)
    costs, num, budget = task.costs(), len(task.linear_N), task.budget
    best = exchanged(costs, task.linear_N, greedy_along(costs, task.linear_N, budget))
    if budget in (0, num) or not costs.nnz:
        return best
    colours_N = _colours(costs)
    order_N = np.argsort(colours_N, kind="stable")
    bounds = np.flatnonzero(np.diff(colours_N[order_N], prepend=-1, append=num)).tolist()
    sorted_costs = costs[order_N][:, order_N]
    linear_N1 = task.linear_N[order_N][:, None]
    classes = [
        (slice(begin, end), -sorted_costs[begin:end], linear_N1[begin:end]) for begin, end in pairwise(bounds)
    ]
    replicas = max(1, REPLICAS_TIMES_DOCUMENTS // num)
    in_NR = (rng.random((num, replicas)) < budget / num).astype(np.float64)
    noises = rng.logistic(size=NOISES + num * replicas)
    price_R = np.full(replicas, (task.linear_N - costs @ np.isin(np.arange(num), best))[best].min())
    unit = float(costs.data.mean())
    begin_s = time.process_time()
    while (passed := (time.process_time() - begin_s) / seconds) < 1:
        heat = unit * HOTTEST * (COLDEST / HOTTEST) ** passed
        for rows, minus_costs, linear_L1 in classes:
            field_LR = minus_costs @ in_NR
            field_LR += linear_L1
            field_LR -= price_R
            start = int(rng.integers(NOISES))
            in_NR[rows] = field_LR > heat * noises[start : start + field_LR.size].reshape(field_LR.shape)
        price_R += heat * (in_NR.sum(axis=0) - budget) / (budget * (1 - budget / num))
    for replica in range(replicas):
        picks = order_N[np.flatnonzero(in_NR[:, replica])]
        picks = exchanged(costs, task.linear_N, _resized(costs, task.linear_N, picks, budget))
        best = max(best, picks, key=task.value_of)
    return best


def _resized(costs: csr_array, linear_N: Doubles, picks: Rows, budget: int) -> Rows:
    """Drop the worst picks or add the best others, one by one."""
    picked_N = np.zeros(len(linear_N), dtype=bool)
    picked_N[picks] = True
    gains_N = linear_N - costs @ picked_N
    while (missing := budget - int(picked_N.sum())) != 0:
        sign = 1 if missing > 0 else -1
        row = np.where(picked_N == (sign < 0), sign * gains_N, -np.inf).argmax()
        picked_N[row] = sign > 0
        edges = slice(costs.indptr[row], costs.indptr[row + 1])
        gains_N[costs.indices[edges]] -= sign * costs.data[edges]
    return np.flatnonzero(picked_N)


def _colours(costs: csr_array) -> Rows:
    """A colour for each document that none of its neighbours has; those of most edges choose first."""
    indptr, indices = costs.indptr.tolist(), costs.indices.tolist()
    colours = [-1] * len(indptr[1:])
    for row in np.argsort(-np.diff(costs.indptr), kind="stable").tolist():
        taken = {colours[other] for other in indices[indptr[row] : indptr[row + 1]]}
        colour = 0
        while colour in taken:
            colour += 1
        colours[row] = colour
    return np.array(colours, dtype=np.int64)
