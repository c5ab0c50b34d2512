"""How many of few vectors stand for themselves, by every pair: what the index finds among many, without what it misses.

Shape suffixes: n vectors of a block, R of those that stand for themselves, P pairs, D embedding dimensions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.near_copies.vectors import Vectors, cosines, read_unit

MOST_VECTORS = 16_384
"""Of which every pair is compared: about three seconds at 768 dimensions."""
BLOCK_ROWS = 1_024
DOUBTFUL = 1e-5
"""Float32 leaves a cosine less uncertain than that: those that are nearer to the threshold are summed anew."""


def num_standing(vectors: Vectors, threshold: float) -> int:
    """How many are near no vector before them that stands for itself.

    Args:
        vectors: Unit rows, shape (N, D), N no more than `MOST_VECTORS` where time counts.
        threshold: Least cosine of near-copies.

    Raises:
        InputError: a vector that is not of unit norm.
    """
    size, dim = vectors.shape
    standing_R, held_RD = np.empty(0, np.int64), np.empty((0, dim), np.float32)
    for start in range(0, size, BLOCK_ROWS):
        block_nD = read_unit(vectors, start, min(start + BLOCK_ROWS, size))
        block_nD = block_nD / np.linalg.norm(block_nD, axis=1, keepdims=True)
        rows_n = np.arange(start, start + len(block_nD))
        new_n = ~_near(vectors, rows_n, block_nD, standing_R, held_RD, threshold).any(1)
        rows_n, block_nD = rows_n[new_n], block_nD[new_n]
        near_nn = _near(vectors, rows_n, block_nD, rows_n, block_nD, threshold)
        stands_n = np.zeros(len(rows_n), bool)
        for place in range(len(rows_n)):
            stands_n[place] = not (near_nn[place, :place] & stands_n[:place]).any()
        standing_R = np.concatenate([standing_R, rows_n[stands_n]])
        held_RD = np.concatenate([held_RD, block_nD[stands_n]])
    return len(standing_R)


def _near(
    vectors: Vectors,
    rows_n: NDArray[np.int64],
    block_nD: NDArray[np.float32],
    others_R: NDArray[np.int64],
    held_RD: NDArray[np.float32],
    threshold: float,
) -> NDArray[np.bool_]:
    """Whether the cosine of each of these to each of those is the threshold's at least."""
    cosines_nR = block_nD @ held_RD.T
    near_nR = cosines_nR >= threshold
    left_P, right_P = np.nonzero(np.abs(cosines_nR - threshold) <= DOUBTFUL)
    near_nR[left_P, right_P] = cosines(vectors, rows_n[left_P], others_R[right_P]) >= threshold
    return near_nR
