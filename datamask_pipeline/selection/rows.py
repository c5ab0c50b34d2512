"""Embeddings as chunks of unit rows, in memory or on disk. Knows no metric, score or mask.

Shape suffixes: N documents, n rows of a chunk, D embedding dimensions.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamask_pipeline.selection.sharded import ShardedVectors
from datamask_pipeline.spill import Room
from datamask_pipeline.vectors import UNIT_TOLERANCE

SMALLEST = 1e-12
"""Norms below this, or above its reciprocal, are taken in float64."""
SUMMED = 1e-5
"""More than float32 loses of a norm when it sums squares."""


class Rows(ABC):
    """N unit vectors of D dimensions that can be read a chunk or a list of rows at a time.

    Attributes:
        num_rows: N.
        dim: D.
        chunk_rows: Rows of every chunk but the last.
        device: Where the rows that are handed out live.
        stored_dtype: What the rows are kept in.
    """

    num_rows: int
    dim: int
    chunk_rows: int
    device: torch.device
    stored_dtype: torch.dtype

    @abstractmethod
    def chunk(self, start: int, stop: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Rows start..stop of unit norm, shape (stop - start, D)."""

    @abstractmethod
    def take(self, index_n: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """The rows of an int64 index on the CPU, shape (n, D)."""

    def spans(self, num_rows: int | None = None) -> Iterator[tuple[int, int]]:
        """(start, stop) of each chunk of N rows, or of another number of them, in order."""
        total = self.num_rows if num_rows is None else num_rows
        for start in range(0, total, self.chunk_rows):
            yield start, min(start + self.chunk_rows, total)

    def chosen(self, index_n: Tensor) -> Rows:
        """Some rows, an ascending int64 index, as a block of their own; read when asked for."""
        return ChosenRows(self, index_n)

    def copied(self, index_n: Tensor, room: Room | None) -> Rows:
        """A copy of some rows, as they are stored, as a block of their own.

        Args:
            index_n: int64 on the CPU.
            room: Where rows of a block on disk are kept; in memory if nowhere.
        """
        return MemoryRows(self.take(index_n, self.stored_dtype), self.chunk_rows)

    def everything(self) -> Tensor:
        """Every row in float32, shape (N, D): for learners that need the block in memory."""
        return self.chunk(0, self.num_rows)


class MemoryRows(Rows):
    """A block in memory, on whatever device the tensor lives.

    Args:
        embeddings_ND: Unit rows in any floating type. Chunks are converted when they are read: only who asks for
            everything makes a float32 copy, which then serves chunks too.
        chunk_rows: Rows of a chunk.
    """

    def __init__(self, embeddings_ND: Tensor, chunk_rows: int) -> None:
        self.chunk_rows = chunk_rows
        self.num_rows, self.dim = embeddings_ND.shape
        self.device = embeddings_ND.device
        self.stored_dtype = embeddings_ND.dtype
        self._stored = embeddings_ND
        self._everything = embeddings_ND if embeddings_ND.dtype == torch.float32 else None
        self._converting = threading.Lock()

    def chunk(self, start: int, stop: int, dtype: torch.dtype = torch.float32) -> Tensor:
        source_ND = (
            self._stored if dtype == self.stored_dtype or self._everything is None else self._everything
        )
        return _converted(source_ND[start:stop], dtype)

    def take(self, index_n: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        return _converted(self._stored[index_n.to(self.device)], dtype)

    def chosen(self, index_n: Tensor) -> Rows:
        return MemoryRows(self._stored[index_n.to(self.device)], self.chunk_rows)

    def everything(self) -> Tensor:
        # At first use several threads may ask at once; one converts, the others wait.
        with self._converting:
            if self._everything is None:
                self._everything = self._stored.float()
            return self._everything


class MappedRows(Rows):
    """Vectors on disk, read a chunk at a time; what is handed out is normalised on the way.

    Args:
        array_ND: A memory map, or vectors that lie in several; floating.
        chunk_rows: Rows of a chunk.
        device: Where chunks are computed on.
        normalise: Whether rows have to be divided by their norm.
    """

    def __init__(
        self,
        array_ND: NDArray[np.floating] | ShardedVectors,
        chunk_rows: int,
        device: torch.device,
        normalise: bool,
    ) -> None:
        self.array_ND, self.chunk_rows, self.device = array_ND, chunk_rows, device
        self.num_rows, self.dim = array_ND.shape
        self.stored_dtype = torch.from_numpy(np.empty(0, array_ND.dtype)).dtype
        self.normalise = normalise

    def chunk(self, start: int, stop: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return self._ready(self.array_ND[start:stop], dtype)

    def take(self, index_n: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        return self._ready(self.array_ND[index_n.numpy()], dtype)

    def copied(self, index_n: Tensor, room: Room | None) -> Rows:
        if room is None or self.device.type != "cpu":
            return super().copied(index_n, room)
        rows_nD = room.array((len(index_n), self.dim), self.array_ND.dtype)
        for span in self.spans(len(index_n)):
            rows_nD[slice(*span)] = self.take(index_n[slice(*span)], self.stored_dtype).numpy()
        return MemoryRows(torch.from_numpy(rows_nD), self.chunk_rows)

    def _ready(self, rows_nD: NDArray[np.floating], dtype: torch.dtype) -> Tensor:
        # A slice of a map is the file itself, read-only; everything else was read into an array of its own.
        own_nD = rows_nD if rows_nD.flags.owndata else np.array(rows_nD)
        tensor_nD = torch.from_numpy(own_nD).to(self.device)
        if self.normalise:
            tensor_nD = unit(tensor_nD)
        return _converted(tensor_nD, dtype)


class ChosenRows(Rows):
    """Some rows of others, in order, as a block of their own.

    Args:
        rows: The rows chosen from.
        index_n: int64, ascending.
    """

    def __init__(self, rows: Rows, index_n: Tensor) -> None:
        self.rows, self.index_n = rows, index_n
        self.num_rows, self.dim = len(index_n), rows.dim
        self.chunk_rows, self.device = rows.chunk_rows, rows.device
        self.stored_dtype = rows.stored_dtype

    def chunk(self, start: int, stop: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return self.rows.take(self.index_n[start:stop], dtype)

    def take(self, index_n: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        return self.rows.take(self.index_n[index_n], dtype)

    def copied(self, index_n: Tensor, room: Room | None) -> Rows:
        return self.rows.copied(self.index_n[index_n], room)


def _converted(rows_nD: Tensor, dtype: torch.dtype) -> Tensor:
    # float16 to bfloat16 is vectorised only by way of float32, which rounds nothing.
    if rows_nD.dtype == torch.float16 and dtype == torch.bfloat16:
        rows_nD = rows_nD.float()
    return rows_nD.to(dtype)


def on_processor(rows_nD: Tensor) -> Tensor:
    """The rows in the processor's memory, from CUDA's by way of pages that it reaches without a copy between."""
    if not (rows_nD.is_cuda and torch.cuda.is_available()):
        return rows_nD.cpu()
    pinned_nD = torch.empty(rows_nD.shape, dtype=rows_nD.dtype, pin_memory=True)
    return pinned_nD.copy_(rows_nD)


def unit(rows_nD: Tensor) -> Tensor:
    """The rows divided by their norms, in float32."""
    return (rows_nD.float() / norms(rows_nD)[:, None]).float()


def unit_tolerance(stored: torch.dtype) -> float:
    """How far from 1 the norm of a vector of this type may lie where the vector is left as it is stored.

    In two bytes a number it is what imports leave, so that what the record holds is read without a copy; in more it is what
    float32 loses where it sums squares. Any other vector is divided by its norm.
    """
    return UNIT_TOLERANCE if stored.itemsize == 2 else SUMMED


def norms(rows_nD: Tensor) -> Tensor:
    """The rows' norms: float32, or float64 where squares of some would leave float32's range."""
    norms_n: Tensor = torch.linalg.vector_norm(rows_nD.float(), dim=1)
    odd_n = ~((norms_n > SMALLEST) & (norms_n < 1 / SMALLEST))
    if odd_n.any():
        norms_n = norms_n.double()
        norms_n[odd_n] = torch.linalg.vector_norm(rows_nD[odd_n].double(), dim=1)
    return norms_n
