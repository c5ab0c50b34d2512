"""How near the nearest of some chosen vectors lies to others: what a subset covers of its pool. Knows vectors alone.

Shape suffixes: M vectors asked for, m of them, C chosen vectors, c of them, D embedding dimensions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.errors import InputError
from datamask_pipeline.near_copies.signatures import EXACT
from datamask_pipeline.near_copies.vectors import Vectors, cosines, read_unit

ASKED_ROWS = 1_024
CHOSEN_ROWS = 8_192
"""Vectors compared at a time: their products take 32 MiB."""


@dataclass(frozen=True)
class Coverage:
    """What chosen vectors cover of a pool.

    Attributes:
        mean: Mean over the pool of the largest cosine with a chosen vector, or its estimate.
        error: Standard error of the mean; 0 where all of the pool was compared.
        num_compared: Vectors of the pool that were compared.
    """

    mean: float
    error: float
    num_compared: int


def coverage_of(
    pool: Vectors,
    chosen: Vectors,
    *,
    num_compared: int,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> Coverage:
    """The mean of the largest cosines over a pool, or over vectors drawn from it without replacement.

    Args:
        pool: Vectors of unit norm, (M, D); chosen ones may be among them.
        chosen: The chosen vectors, (C, D).
        num_compared: At most so many of the pool are compared; at least 2.
        seed: Draws them.
        progress: As `largest_cosines`.

    Raises:
        InputError: a vector is not of unit norm, nothing is chosen, or fewer than two are compared.
    """
    size = pool.shape[0]
    if chosen.shape[0] == 0 or min(num_compared, size) < 2:
        raise InputError(
            "coverage needs a chosen vector, and two of the pool to compare",
            value=f"{chosen.shape[0]} chosen, {min(num_compared, size)} compared",
        )
    num_drawn = min(num_compared, size)
    drawn_M = np.sort(np.random.default_rng(seed).choice(size, num_drawn, replace=False))
    cosines_M = largest_cosines(chosen, pool[drawn_M], progress=progress)
    left_out = 1 - num_drawn / size
    error = math.sqrt(float(cosines_M.var(ddof=1)) / num_drawn * left_out) if left_out else 0.0
    return Coverage(math.fsum(cosines_M) / num_drawn, error, num_drawn)


def largest_cosines(
    chosen: Vectors, asked: Vectors, *, progress: Callable[[int, int], None] | None = None
) -> NDArray[np.float64]:
    """Of each vector asked for, its cosine to the nearest chosen one, shape (M,).

    The nearest is found among vectors that are rounded to whole numbers so small that every product and sum is exact in
    float32: it does not depend on threads, and its cosine, which is exact, falls short of the largest by a few 1e-4 at most.

    Args:
        chosen: The chosen vectors of unit norm, (C, D).
        asked: Those that are asked for, (M, D); one that is chosen itself is its own nearest.
        progress: Called with the blocks done and their number.

    Raises:
        InputError: a vector is not of unit norm.
    """
    scale = _scale(chosen.shape[1])
    best_M = np.full(asked.shape[0], -np.inf, np.float32)
    nearest_M = np.zeros(asked.shape[0], np.int64)
    blocks = list(itertools.pairwise(_edges(chosen.shape[0], CHOSEN_ROWS)))
    for number, (start, stop) in enumerate(blocks, start=1):
        chosen_cD = np.rint(read_unit(chosen, start, stop) * scale)
        for first, last in itertools.pairwise(_edges(asked.shape[0], ASKED_ROWS)):
            products_mc = np.rint(read_unit(asked, first, last) * scale) @ chosen_cD.T
            places_m = products_mc.argmax(1)
            found_m = products_mc[np.arange(last - first), places_m]
            better_m = found_m > best_M[first:last]
            best_M[first:last][better_m] = found_m[better_m]
            nearest_M[first:last][better_m] = start + places_m[better_m]
        if progress is not None:
            progress(number, len(blocks))
    return np.concatenate([*_exact(chosen, asked, nearest_M)])


def _exact(chosen: Vectors, asked: Vectors, nearest_M: NDArray[np.int64]) -> Iterator[NDArray[np.float64]]:
    """The cosine of each to its nearest, in float64."""
    for first, last in itertools.pairwise(_edges(len(nearest_M), ASKED_ROWS)):
        pairs_2mD = np.concatenate([asked[first:last], chosen[nearest_M[first:last]]])
        rows_m = np.arange(last - first)
        yield cosines(pairs_2mD, rows_m, rows_m + (last - first))


def _edges(num_rows: int, step: int) -> list[int]:
    return [*range(0, num_rows, step), num_rows]


def _scale(num_dimensions: int) -> float:
    """By Cauchy and Schwarz no partial sum exceeds `EXACT`; rounding adds at most a half in each dimension."""
    return (math.sqrt(EXACT) - math.sqrt(num_dimensions) / 2) / 1.01
