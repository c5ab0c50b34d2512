"""Vectors that are read where they are indexed, whether they are usable, and exact cosines of listed pairs.

Shape suffixes: n vectors, P pairs, D embedding dimensions.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.errors import InputError
from datamask_pipeline.vectors import are_unit

PAIR_ROWS = 512
"""Pairs compared at a time: their numbers stay in the processor's cache."""


class Vectors(Protocol):
    """An array or a map of shape (N, D), or files that are indexed like one."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __getitem__(self, index: Any) -> NDArray[Any]: ...


def require_shape(vectors: Vectors, num_dimensions: int) -> None:
    """Refuse what is no (N, D) array of floats of this width.

    Raises:
        InputError: naming type or shape.
    """
    if not isinstance(getattr(vectors, "dtype", None), np.dtype):
        raise InputError(
            "embeddings must be a numpy array, mapped or in memory, or files that are indexed like one",
            field="embeddings",
            value=type(vectors).__name__,
            remedy="give np.asarray of them, in float32",
        )
    if vectors.dtype.kind != "f":
        raise InputError("embeddings must be floats", field="embeddings", value=str(vectors.dtype))
    if len(vectors.shape) != 2 or vectors.shape[1] != num_dimensions:
        raise InputError(
            f"embeddings must have shape (N, {num_dimensions})",
            field="embeddings",
            value=tuple(vectors.shape),
            remedy="give vectors of the encoder that the index was created for",
        )


def read_unit(vectors: Vectors, start: int, stop: int) -> NDArray[np.float32]:
    """The vectors of these rows in float32, shape (n, D).

    Raises:
        InputError: one is not of unit norm, or holds NaN or infinity; the message names the first.
    """
    read_nD: NDArray[np.float32] = np.asarray(vectors[start:stop], np.float32)
    require_unit(read_nD, start)
    return read_nD


def require_unit(read_nD: NDArray[np.float32], start: int) -> None:
    """Refuse vectors, the first of which is of this row, that are not of unit norm.

    Raises: as `read_unit`.
    """
    norms_n = np.sqrt(np.einsum("nd,nd->n", read_nD, read_nD))
    wrong_n = ~are_unit(norms_n)
    if wrong_n.any():
        place = int(np.argmax(wrong_n))
        raise InputError(
            "near-copies are sought among vectors of unit norm",
            row=start + place,
            field="embeddings",
            value=f"norm {norms_n[place]:.6g}",
            remedy="divide each vector by its norm; leave out documents without a finite vector",
        )


def cosines(vectors: Vectors, left_P: NDArray[np.int64], right_P: NDArray[np.int64]) -> NDArray[np.float64]:
    """The cosine of each pair of rows.

    Every sum runs over one pair alone, in float64: no cosine depends on the pairs beside it or on threads.
    """
    found_P = np.empty(len(left_P))
    for start in range(0, len(left_P), PAIR_ROWS):
        part = slice(start, start + PAIR_ROWS)
        left_nD, right_nD = (vectors[rows_P[part]].astype(np.float64) for rows_P in (left_P, right_P))
        norms_n = np.sqrt((left_nD * left_nD).sum(1) * (right_nD * right_nD).sum(1))
        found_P[part] = (left_nD * right_nD).sum(1) / norms_n
    return found_P
