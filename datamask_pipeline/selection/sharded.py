"""Vectors that lie in several `.npy` files, found by file and row. Knows no metric and no store.

Shape suffixes: N vectors, n of them, D embedding dimensions, F files.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.errors import InputError
from datamask_pipeline.spill import Room

OPEN_FILES = 256
"""Files kept mapped at a time: each holds a file descriptor, of which a process has about a thousand."""
_PIECE = 1 << 18
"""Places looked at together."""


class ShardedVectors:
    """N vectors as one array that is read where it is indexed; nothing is gathered, memory does not grow with N * D.

    Args:
        files: F `.npy` files of one floating type and one width D, in C order.
        files_N: Which file each vector lies in, as an index of `files`.
        rows_N: The row in that file.

    Attributes:
        shape: (N, D).
        dtype: Type of the numbers.

    Raises:
        InputError: a file cannot be mapped or is of another type or width, or a file or row is not there.
    """

    def __init__(
        self, files: Sequence[str | Path], files_N: NDArray[np.integer], rows_N: NDArray[np.integer]
    ) -> None:
        self.files, self.files_N, self.rows_N = tuple(map(str, files)), files_N, rows_N
        self._opened = functools.lru_cache(OPEN_FILES)(open_npy)
        if files_N.shape != rows_N.shape or files_N.ndim != 1:
            raise InputError(f"{files_N.shape} files and {rows_N.shape} rows do not make an index")
        if not self.files or len(files_N) == 0:
            raise InputError("an index of vectors without a vector", field="embeddings")
        if not 0 <= files_N.min() <= files_N.max() < len(self.files):
            raise InputError("an index names a file that is not there", value=int(files_N.max()))
        first_FD = self._opened(self.files[0])
        self.dtype, self.shape = first_FD.dtype, (len(files_N), first_FD.shape[-1])
        lengths_F = np.array([self._length(file) for file in self.files])
        for start in range(0, len(files_N), _PIECE):
            rows_n, files_n = rows_N[start : start + _PIECE], files_N[start : start + _PIECE]
            outside_n = (rows_n < 0) | (rows_n >= lengths_F[files_n])
            if outside_n.any():
                place = int(np.argmax(outside_n))
                raise InputError(
                    "an index names a row that its file does not have",
                    file=self.files[files_n[place]],
                    row=int(rows_n[place]),
                    remedy="make the index from these files",
                )

    ndim = 2

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice | NDArray[np.int64]) -> NDArray[Any]:
        """The vectors of a slice or of an index, shape (n, D), as an array of their own."""
        files_n, rows_n = self.files_N[index], self.rows_N[index]
        order_n = np.argsort(files_n, kind="stable")
        edges = [*np.flatnonzero(np.diff(files_n[order_n], prepend=-1)).tolist(), len(files_n)]
        vectors_nD = np.empty((len(files_n), self.shape[1]), self.dtype)
        for start, stop in itertools.pairwise(edges):
            places_n = order_n[start:stop]
            stored_RD = self._opened(self.files[files_n[places_n[0]]])
            # The rows are known to be there; with mode="raise" numpy would copy once more.
            np.take(stored_RD, rows_n[places_n], axis=0, out=vectors_nD[start:stop], mode="clip")
        if (order_n[1:] > order_n[:-1]).all():
            return vectors_nD
        ordered_nD = np.empty_like(vectors_nD)
        ordered_nD[order_n] = vectors_nD
        return ordered_nD

    def chosen(self, index_n: NDArray[np.int64], room: Room | None = None) -> ShardedVectors:
        """Some of the vectors; only their places are copied.

        Args:
            index_n: Which.
            room: Where their places lie; in memory if nowhere. `index_n` must then be of numbers from 0 on that are there.

        Raises:
            IndexError: one is not there.
        """
        if room is None:
            return ShardedVectors(self.files, self.files_N[index_n], self.rows_N[index_n])
        return ShardedVectors(self.files, room.taken(self.files_N, index_n), room.taken(self.rows_N, index_n))

    def _length(self, file: str) -> int:
        stored_RD = self._opened(file)
        if stored_RD.ndim != 2 or stored_RD.shape[1] != self.shape[1] or stored_RD.dtype != self.dtype:
            raise InputError(
                f"files of vectors differ: {self.files[0]} holds {self.dtype} of width {self.shape[1]}",
                file=file,
                value=f"{stored_RD.dtype} of shape {stored_RD.shape}",
            )
        return len(stored_RD)


def open_npy(path: str | Path) -> NDArray[Any]:
    """A `.npy`, mapped read-only.

    Raises:
        InputError: there is none, or it cannot be mapped.
    """
    remedy = "give the path of a .npy of floats, or the array itself"
    try:
        array = np.load(path, mmap_mode="r")
    except FileNotFoundError as error:
        raise InputError("no such file", file=str(path), remedy=remedy) from error
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"no .npy that can be mapped: {error}", file=str(path), remedy=remedy) from error
    if not isinstance(array, np.ndarray):
        raise InputError("an archive of arrays, not one array", file=str(path), remedy=remedy)
    return array
