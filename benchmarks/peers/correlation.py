"""Greedy and exchanges for DiSF in correlation form by exact marginals. Knows no learner, budget or normalisation.

Shape suffixes: N documents, B documents of a block, D dimensions.

Let the picks have the covariance S, variances s and correlations C. With a document whose deviation from their mean is z
they have the covariance ``S + w z z'`` but for a factor, ``w = 1 / (n + 1)``. With ``u = z / sqrt(s)``,
``r = 1 / (1 + w u^2)`` and Q the squares of C, the squared correlations then sum up to
``r'Qr + 2 w (r u)'C(r u) + w^2 (u^2 . r)^2``: two quadratic forms a document, and nothing is approximated.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import Task

Floats = NDArray[np.float32]
BLOCK = 256
AGE = 32
"""The most picks that an order of all documents serves; it serves a 16th of their number where that is less."""
CHUNK = 4096
CONSTANT = 1e-6
LEAST_GAIN = 1e-6


def exact_greedy(task: Task) -> NDArray[np.int64]:
    """Rows in the order of their picks; every marginal is computed anew at each pick."""
    return _greedy(task, block=len(task.linear_N), age=1)


def block_lazy_greedy(task: Task) -> NDArray[np.int64]:
    """The same, but for one approximation: a document beyond the `BLOCK` best of some picks ago is not thought of.

    The metric is not submodular, so that an old marginal bounds nothing; what a document would add is computed for all
    of them from time to time, and for those of the block at each pick.
    """
    return _greedy(task, block=BLOCK, age=AGE)


def greedy_with_exchanges(task: Task) -> NDArray[np.int64]:
    """`block_lazy_greedy`, and then each pick in turn for the best document in its place, until none is exchanged."""
    picks = block_lazy_greedy(task)
    rows_ND = task.embeddings_ND.astype(np.float32)
    rows_KD = rows_ND[picks].astype(np.float64)
    first_D, second_DD = rows_KD.sum(0), rows_KD.T @ rows_KD
    kept = 0
    while kept < len(picks):
        for place in range(len(picks)):
            row_D = rows_ND[picks[place]].astype(np.float64)
            without = first_D - row_D, second_DD - row_D[:, None] * row_D, len(picks) - 1
            gains_N = _gains(rows_ND, task.linear_N, *without, task.scale)
            now = gains_N[picks[place]]
            gains_N[picks] = -np.inf
            best = int(gains_N.argmax())
            kept += 1
            if gains_N[best] > now + LEAST_GAIN:
                kept, picks[place] = 0, best
                row_D = rows_ND[best].astype(np.float64)
                first_D, second_DD = without[0] + row_D, without[1] + row_D[:, None] * row_D
            if kept == len(picks):
                break
    return picks


def _greedy(task: Task, block: int, age: int) -> NDArray[np.int64]:
    rows_ND = task.embeddings_ND.astype(np.float32)
    open_N = np.ones(len(rows_ND), dtype=bool)
    first_D = np.zeros(rows_ND.shape[1])
    second_DD = np.zeros((rows_ND.shape[1], rows_ND.shape[1]))
    picks: list[int] = []
    left = 0
    while len(picks) < task.budget:
        if len(picks) < 2:
            # Two documents correlate fully in every dimension, whichever they are.
            pick = int(np.where(open_N, task.linear_N, -np.inf).argmax())
        else:
            statistics = first_D, second_DD, len(picks)
            if not left:
                left = max(1, min(age, len(picks) // 16))
                gains_N = np.where(open_N, _gains(rows_ND, task.linear_N, *statistics, task.scale), -np.inf)
                size = min(block, int(open_N.sum()))
                rows_B = np.sort(np.argpartition(gains_N, len(gains_N) - size)[-size:])
                gains_B = gains_N[rows_B]
                block_BD, linear_B = rows_ND[rows_B], task.linear_N[rows_B]
            else:
                gains_B = np.where(
                    open_N[rows_B], _gains(block_BD, linear_B, *statistics, task.scale), -np.inf
                )
            pick = int(rows_B[gains_B.argmax()])
            left = min(left - 1, int(open_N[rows_B].sum()) - 1)
        picks.append(pick)
        open_N[pick] = False
        row_D = rows_ND[pick].astype(np.float64)
        first_D += row_D
        second_DD += row_D[:, None] * row_D
    return np.array(picks, dtype=np.int64)


def _gains(
    rows_BD: Floats,
    linear_B: NDArray[np.float64],
    first_D: NDArray[np.float64],
    second_DD: NDArray[np.float64],
    count: int,
    scale: float,
) -> NDArray[np.float64]:
    """What each row adds to the objective, but for a constant. Dimensions that are constant so far stay so."""
    mean = first_D / count
    variance = np.diag(second_DD) / count - mean**2
    varies = variance > CONSTANT * np.diag(second_DD) / count
    inverse = np.where(varies, 1 / np.sqrt(np.where(varies, variance, 1)), 0)
    scaled_mean = mean * inverse
    correlation_DD = second_DD * (inverse[:, None] * (inverse / count))
    correlation_DD = (correlation_DD - scaled_mean[:, None] * scaled_mean).astype(np.float32)
    squares_DD = np.square(correlation_DD)
    mean_D, inverse_D = mean.astype(np.float32), inverse.astype(np.float32)
    sums_D, weight = squares_DD.sum(0), np.float32(1 / (count + 1))
    losses = []
    for start in range(0, len(rows_BD), CHUNK):
        scaled_bD = (rows_BD[start : start + CHUNK] - mean_D) * inverse_D
        taken_bD = weight * np.square(scaled_bD)
        shrunk_bD = 1 / (1 + taken_bD)
        taken_bD *= shrunk_bD  # 1 - r
        scaled_bD *= shrunk_bD  # r u
        loss_b = np.einsum("bd,bd->b", taken_bD @ squares_DD, taken_bD) - 2 * (taken_bD @ sums_D)
        loss_b += 2 * weight * np.einsum("bd,bd->b", scaled_bD @ correlation_DD, scaled_bD)
        losses.append(loss_b + np.square(taken_bD.sum(1)))
    return linear_B - scale * np.concatenate(losses).astype(np.float64)
