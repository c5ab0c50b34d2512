"""Neighbour lists of references, and the same entries by document. Knows no mask, quality or way to find them.

Shape suffixes: N documents, R references, r references of a part, k list entries, E entries in all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

NO_ENTRY = -1.0
"""The similarity that fills up lists which are shorter than the longest; true ones are never negative."""


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
        documents_Rk: int64 rows of the block, most similar first, no row twice in a list; any row where there is
            no entry.
        similarities_Rk: float32 clipped at 0, falling along a list; `NO_ENTRY` behind the end of a shorter one.
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
        """k, of the longest."""
        return self.documents_Rk.shape[1]

    @cached_property
    def floor_R(self) -> Tensor:
        """The smallest listed similarity: what any text reaches here, subtracted before documents compete."""
        last_R1 = (self.similarities_Rk != NO_ENTRY).sum(1, keepdim=True) - 1
        return self.similarities_Rk.gather(1, last_R1).squeeze(1)

    @property
    def lowest_R(self) -> Tensor:
        """The smallest dual variables for which the lists hold every term of the bound: the ceiling, or the floor."""
        return self.floor_R if self.ceiling_R is None else self.ceiling_R

    @cached_property
    def by_document(self) -> ByDocument:
        """The same entries, grouped by document."""
        similarities_Rk = self.similarities_Rk.numpy()
        references_E, places_E = np.nonzero(similarities_Rk != NO_ENTRY)
        documents_E = self.documents_Rk.numpy()[references_E, places_E]
        order_E = np.argsort(documents_E, kind="stable")
        counts_N = np.bincount(documents_E, minlength=self.num_documents)
        return ByDocument(
            offsets_N1=np.concatenate([[0], np.cumsum(counts_N)]).astype(np.int64),
            references_E=references_E[order_E],
            similarities_E=similarities_Rk[references_E, places_E][order_E],
        )

    def lengthened(self, references_r: Tensor, longer: NeighbourLists) -> NeighbourLists:
        """These lists, those of a few references (int64) replaced by longer ones; both have ceilings."""
        assert self.ceiling_R is not None, "exact lists have one"
        assert longer.ceiling_R is not None, "exact lists have one"
        more = (0, longer.length - self.length)
        return NeighbourLists(
            num_documents=self.num_documents,
            documents_Rk=pad(self.documents_Rk, more).index_copy(0, references_r, longer.documents_Rk),
            similarities_Rk=pad(self.similarities_Rk, more, value=NO_ENTRY).index_copy(
                0, references_r, longer.similarities_Rk
            ),
            ceiling_R=self.ceiling_R.index_copy(0, references_r, longer.ceiling_R),
        )
