"""Greedy and exchanges for Vendi by exact changes of the entropy. Knows no learner, bound or normalisation.

The objective is ``sum of linear_i - scale * tr(C log C)``, C the sum of ``x_i x_i'`` over the picks, divided by its trace.

``x log x`` is an integral over t of what resolvents give, and a trace of resolvents is the slope of a log-determinant. So
the entropy of a matrix of trace 1 moves by the integral over t of the change of ``log det(C + t)``, which the matrix
determinant lemma has in closed form for one document that comes and one that goes.

Shape suffixes: N documents, B of them, K picks, R directions the picks span, J nodes of the integral.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import Task

Floats = NDArray[np.float64]
STEP = 1.0
NODES = np.exp(np.arange(-21, 20) * STEP)
"""Evenly in log t: the rule errs by ``exp(-2 pi^2 / STEP)``."""
LEAST_GAIN = 1e-9
AT_ONCE = 65_536
"""Pairs whose integrand is in memory at a time."""


class _Picked:
    """What the picks span: eigenvalues of the sum of their ``x x'``, every document along its directions."""

    def __init__(self, rows_ND: Floats, picks: list[int]) -> None:
        rows_KD = rows_ND[picks]
        if len(picks) < rows_ND.shape[1]:
            values, vectors_KR = np.linalg.eigh(rows_KD @ rows_KD.T)
            kept = values > 1e-10 * values[-1]
            self.values_R = values[kept]
            along_DR = rows_KD.T @ (vectors_KR[:, kept] / np.sqrt(self.values_R))
        else:
            values, along_DR = np.linalg.eigh(rows_KD.T @ rows_KD)
            self.values_R = np.maximum(values, 0)
        self.along_NR = rows_ND @ along_DR
        self.squared_N = np.einsum("nd,nd->n", rows_ND, rows_ND)
        self.beside_N = np.maximum(self.squared_N - np.square(self.along_NR).sum(1), 0)
        self.total = float(self.values_R.sum())
        self.energy = float((self.values_R * np.log(np.maximum(self.values_R, 1e-300))).sum())
        self.nodes_J = NODES * self.total
        self.inverse_RJ = 1 / (self.values_R[:, None] + self.nodes_J)
        self.own_NJ = np.square(self.along_NR) @ self.inverse_RJ + self.beside_N[:, None] / self.nodes_J

    def entropy(self, traces: Floats, logarithms: Floats) -> Floats:
        """The entropy after changes of the trace and of ``log det(C + t)``, these along the last axis."""
        moved = traces - (logarithms - traces[..., None] / (1 + self.nodes_J)) @ (self.nodes_J * STEP)
        after = self.total + traces
        result: Floats = np.log(after) - (self.energy + moved) / after
        return result

    def joined(self) -> Floats:
        """The entropy with each document more."""
        return self.entropy(self.squared_N, np.log1p(self.own_NJ))

    def exchanged(self, into_B: NDArray[np.int64], out_K: NDArray[np.int64]) -> Floats:
        """The entropy with one document for another: shape (B, K)."""
        traces = self.squared_N[into_B][:, None] - self.squared_N[out_K]
        factors = np.empty((len(into_B), len(out_K), len(self.nodes_J)))
        for place in range(len(self.nodes_J)):
            cross = (self.along_NR[into_B] * self.inverse_RJ[:, place]) @ self.along_NR[out_K].T
            kept = 1 - self.own_NJ[out_K, place]
            factors[:, :, place] = (1 + self.own_NJ[into_B, place])[:, None] * kept + np.square(cross)
        return self.entropy(traces, np.log(np.maximum(factors, 1e-15)))


def greedy(task: Task) -> NDArray[np.int64]:
    """Rows in the order of their picks: each is of the largest gain in quality and in the entropy of the picks so far."""
    rows_ND = task.embeddings_ND.astype(np.float64)
    picks = [int(task.linear_N.argmax())]
    while len(picks) < task.budget:
        gains_N = task.linear_N + task.scale * _Picked(rows_ND, picks).joined()
        gains_N[picks] = -np.inf
        picks.append(int(gains_N.argmax()))
    return np.array(picks, dtype=np.int64)


def greedy_with_exchanges(task: Task) -> NDArray[np.int64]:
    """The same, and then the best exchange of any pick for any other document until none gains."""
    picks = greedy(task)
    rows_ND = task.embeddings_ND.astype(np.float64)
    while True:
        picked = _Picked(rows_ND, picks.tolist())
        before = np.log(picked.total) - picked.energy / picked.total
        outside_n = np.setdiff1d(np.arange(len(rows_ND)), picks)
        best = (LEAST_GAIN, -1, -1)
        step = max(1, AT_ONCE // len(picks))
        for start in range(0, len(outside_n), step):
            into_B = outside_n[start : start + step]
            gains = task.scale * (picked.exchanged(into_B, picks) - before)
            gains += task.linear_N[into_B][:, None] - task.linear_N[picks]
            row, column = divmod(int(gains.argmax()), len(picks))
            best = max(best, (float(gains[row, column]), int(into_B[row]), column))
        if best[1] < 0:
            return picks
        picks[best[2]] = best[1]
