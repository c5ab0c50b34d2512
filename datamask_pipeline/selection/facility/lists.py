"""Neighbour lists of references, and the same entries by document. Knows no mask, quality or way to find them.

Shape suffixes: N documents, R references, k list entries, E = R * k entries in all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ByDocument:
    """List entries grouped by document: those of document i stand at ``offsets[i]:offsets[i + 1]``.

    Attributes:
        offsets_N1: int64, N + 1 of them.
        references_E: int64, rising within a document.
        similarities_E: float32.
    """

    offsets_N1: NDArray[np.int64]
    references_E: NDArray[np.int64]
    similarities_E: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class NeighbourLists:
    """The documents most similar to each reference.

    Attributes:
        num_documents: N.
        documents_Rk: int64 rows of the block, most similar first, no row twice in a list.
        similarities_Rk: float32 clipped at 0, falling along a list.
        ceiling_R: float32: no document outside the list of a reference is more similar to it; None where the
            search was approximate and nothing is known about the rest.
    """

    num_documents: int
    documents_Rk: Tensor
    similarities_Rk: Tensor
    ceiling_R: Tensor | None

    @property
    def num_references(self) -> int:
        """R."""
        return self.documents_Rk.shape[0]

    @property
    def length(self) -> int:
        """k."""
        return self.documents_Rk.shape[1]

    @property
    def floor_R(self) -> Tensor:
        """The smallest listed similarity: what any text reaches here, subtracted before documents compete."""
        return self.similarities_Rk[:, -1]

    @property
    def lowest_R(self) -> Tensor:
        """The smallest dual variables for which the lists hold every term of the bound: the ceiling, or the floor."""
        return self.floor_R if self.ceiling_R is None else self.ceiling_R

    @cached_property
    def by_document(self) -> ByDocument:
        """The same entries, grouped by document."""
        documents_E = self.documents_Rk.reshape(-1).numpy()
        order_E = np.argsort(documents_E, kind="stable")
        counts_N = np.bincount(documents_E, minlength=self.num_documents)
        return ByDocument(
            offsets_N1=np.concatenate([[0], np.cumsum(counts_N)]).astype(np.int64),
            references_E=(order_E // self.length).astype(np.int64),
            similarities_E=self.similarities_Rk.reshape(-1).numpy()[order_E],
        )
