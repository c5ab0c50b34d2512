"""Embeddings as chunks of unit rows, in memory or on disk. Knows no metric, score or mask.

Shape suffixes: N documents, n rows of a chunk, D embedding dimensions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor


class Rows(ABC):
    """N unit vectors of D dimensions that can be read a chunk or a list of rows at a time.

    Attributes:
        num_rows: N.
        dim: D.
        chunk_rows: Rows of every chunk but the last.
    """

    num_rows: int
    dim: int
    chunk_rows: int

    @abstractmethod
    def chunk(self, start: int, stop: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Rows start..stop of unit norm, shape (stop - start, D)."""

    @abstractmethod
    def take(self, index_n: Tensor) -> Tensor:
        """The rows of an int64 index, float32, shape (n, D)."""

    def spans(self) -> Iterator[tuple[int, int]]:
        """(start, stop) of each chunk, in order."""
        for start in range(0, self.num_rows, self.chunk_rows):
            yield start, min(start + self.chunk_rows, self.num_rows)


class MemoryRows(Rows):
    """A block in memory, on whatever device the tensor lives.

    Args:
        embeddings_ND: Unit rows in any floating type. A copy in the type of the arithmetic is kept from its
            first use, since every step reads it.
        chunk_rows: Rows of a chunk.
    """

    def __init__(self, embeddings_ND: Tensor, chunk_rows: int) -> None:
        self.embeddings_ND, self.chunk_rows = embeddings_ND, chunk_rows
        self.num_rows, self.dim = embeddings_ND.shape
        self._copies: dict[torch.dtype, Tensor] = {embeddings_ND.dtype: embeddings_ND}

    def chunk(self, start: int, stop: int, dtype: torch.dtype = torch.float32) -> Tensor:
        if dtype not in self._copies:
            self._copies[dtype] = self.embeddings_ND.to(dtype)
        return self._copies[dtype][start:stop]

    def take(self, index_n: Tensor) -> Tensor:
        return self.embeddings_ND[index_n].to(torch.float32)

    def all(self) -> Tensor:
        """Every row in float32, shape (N, D)."""
        return self.chunk(0, self.num_rows)
