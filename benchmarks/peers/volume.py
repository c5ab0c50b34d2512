"""Greedy and exchanges for LogDet by rank-one updates. Knows no learner, bound or normalisation.

The objective is ``sum of linear_i + scale / D * log det(I + D / K sum of x_i x_i')``, over K picks.

Shape suffixes: N documents, K picks, D dimensions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import Task

Floats = NDArray[np.float64]
LEAST_GAIN = 1e-10


def cholesky_greedy(task: Task) -> NDArray[np.int64]:
    """Rows in the order of their picks: each is of the largest gain, kept up to date by one column of a Cholesky factor.

    Source: Chen, Zhang and Zhou 2018 (arXiv 1709.05135).
    """
    rows_ND = task.embeddings_ND.astype(np.float32)
    dimensions = rows_ND.shape[1]
    weight, scale = np.float32(dimensions / task.budget), task.scale / dimensions
    factor_NK = np.empty((len(rows_ND), task.budget), dtype=np.float32)
    left_N = 1 + weight * np.einsum("nd,nd->n", rows_ND, rows_ND).astype(np.float64)
    open_N = np.zeros(len(rows_ND))
    picks: list[int] = []
    while len(picks) < task.budget:
        pick = int((task.linear_N + scale * np.log(left_N) + open_N).argmax())
        known = len(picks)
        column_N = rows_ND @ (weight * rows_ND[pick])
        column_N -= factor_NK[:, :known] @ factor_NK[pick, :known]
        column_N[pick] = left_N[pick]
        column_N /= np.float32(np.sqrt(left_N[pick]))
        factor_NK[:, known] = column_N
        left_N = np.maximum(left_N - np.square(column_N, dtype=np.float64), 1.0)
        open_N[pick] = -np.inf
        picks.append(pick)
    return np.array(picks, dtype=np.int64)


def greedy_with_exchanges(task: Task) -> NDArray[np.int64]:
    """The same, and then the best exchange of any pick for any other document until none gains."""
    picks = cholesky_greedy(task)
    rows_ND = task.embeddings_ND.astype(np.float64)
    dimensions = rows_ND.shape[1]
    weight, scale = dimensions / task.budget, task.scale / dimensions
    rows_KD = rows_ND[picks]
    inverse_DD = np.linalg.inv(np.eye(dimensions) + weight * rows_KD.T @ rows_KD)
    cross_NK = weight * rows_ND @ (inverse_DD @ rows_KD.T)
    own_N = weight * np.einsum("nd,nd->n", rows_ND @ inverse_DD, rows_ND)
    outside_N = np.ones(len(rows_ND), dtype=bool)
    outside_N[picks] = False
    while True:
        # Concave: no exchange gains more than its tangent says, so that most pairs need no logarithm.
        tangent_N = task.linear_N + scale * own_N
        into_n = np.flatnonzero(outside_N & (tangent_N > tangent_N[picks].min()))
        if not len(into_n):
            return picks
        out_k = np.flatnonzero(tangent_N[picks] < tangent_N[into_n].max())
        out_rows_k = picks[out_k]
        factors = (1 + own_N[into_n])[:, None] * (1 - own_N[out_rows_k])
        factors += np.square(cross_NK[np.ix_(into_n, out_k)])
        gains = scale * np.log(factors) + task.linear_N[into_n][:, None] - task.linear_N[out_rows_k]
        row, column = divmod(int(gains.argmax()), len(out_k))
        if gains[row, column] <= LEAST_GAIN:
            return picks
        into, place = int(into_n[row]), int(out_k[column])
        out = int(picks[place])
        for document, sign in ((into, 1.0), (out, -1.0)):
            along_D = inverse_DD @ rows_ND[document]
            along_N = rows_ND @ along_D
            divisor = weight / (1 + sign * weight * along_N[document]) * sign
            inverse_DD -= divisor * along_D[:, None] * along_D
            cross_NK -= (weight * divisor) * along_N[:, None] * along_N[picks]
            own_N -= weight * divisor * np.square(along_N)
        picks[place] = into
        cross_NK[:, place] = weight * rows_ND @ (inverse_DD @ rows_ND[into])
        outside_N[[into, out]] = False, True
