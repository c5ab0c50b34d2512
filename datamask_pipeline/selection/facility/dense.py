"""Lazy greedy on every similarity: the fair opponent of neighbour lists. Knows no list, quality or certificate.

Shape suffixes: N documents, R references, r references of a span, D embedding dimensions, b documents of a batch, P
picks.

Minoux's accelerated greedy (1978): gains only fall, so old gains bound new ones and only the candidates at the top
of a heap are evaluated again. The similarities stay in memory where they fit; else each evaluation computes its
own, a batch of candidates at a time, since one candidate alone would wait for memory.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamask_pipeline.products import product_into
from datamask_pipeline.selection.parallel import Workers

MATRIX_BYTES = 4 << 30
"""Largest similarity matrix kept in memory."""
CHUNK_DOCUMENTS = 256
SPAN_REFERENCES = 8192
FIRST_ON_DEMAND, MOST_ON_DEMAND = 8, 256
"""Candidates that share one reading of every embedding: after a pick, and twice as many each time until the next."""
RECENT = 512
"""Candidates whose similarities are kept until the next pick, which is most often one of them."""
REPORT_EVERY = 256


def dense_lazy_greedy(
    documents_ND: Tensor,
    references_R: Tensor,
    linear_N: Tensor,
    weight: float,
    groups_N: Tensor,
    limits: Sequence[int],
    workers: Workers,
    report: Callable[[int], None],
) -> Tensor:
    """Picks of the greedy algorithm in order, int64 of shape (P,), equal gains in row order.

    Args:
        documents_ND: Unit rows, float32.
        references_R: int64 rows that are references.
        linear_N: float64 linear part of each document.
        weight: Of the mean coverage.
        groups_N: Group of each document.
        limits: Documents of each group, no more than it has.
        workers: Threads over chunks of products.
        report: Called with the number of picks, once in a while.
    """
    fits = len(documents_ND) * len(references_R) * 4 <= MATRIX_BYTES
    similar = (_InMemory if fits else _OnDemand)(documents_ND, documents_ND[references_R], workers)
    linear, scale = linear_N.tolist(), weight / len(references_R)
    heap = [(-linear[i] - scale * above, i, 0) for i, above in enumerate(similar.first_gains())]
    heapq.heapify(heap)
    left, groups = list(limits), groups_N.tolist()
    picks: list[int] = []
    wanted, batch = sum(left), similar.most
    while len(picks) < wanted:
        if heap[0][2] == len(picks):
            document = heapq.heappop(heap)[1]
            if left[groups[document]] == 0:
                continue
            left[groups[document]] -= 1
            picks.append(document)
            batch = similar.first
            similar.select(document)
            if len(picks) % REPORT_EVERY == 0:
                report(len(picks))
            continue
        stale = [heapq.heappop(heap)[1] for _ in range(min(batch, len(heap)))]
        batch = min(2 * batch, similar.most)
        for document, above in zip(stale, similar.gains(stale), strict=True):
            heapq.heappush(heap, (-linear[document] - scale * above, document, len(picks)))
    return torch.tensor(picks)


class _Similarities(ABC):
    """Sums over references of how far a document's similarity stands above the best selected one's."""

    first: int
    """Candidates evaluated together after a pick."""
    most: int

    def __init__(self, documents_ND: Tensor, references_RD: Tensor, workers: Workers) -> None:
        self.documents_ND, self.references_RD, self.workers = documents_ND, references_RD, workers

    @abstractmethod
    def first_gains(self) -> list[float]:
        """Of every document while none is selected."""

    @abstractmethod
    def gains(self, documents: list[int]) -> list[float]:
        """Of these documents now."""

    @abstractmethod
    def select(self, document: int) -> None:
        """Counts a document as selected."""


class _InMemory(_Similarities):
    first = most = 1

    def first_gains(self) -> list[float]:
        self._matrix_NR = np.empty((len(self.documents_ND), len(self.references_RD)), dtype=np.float32)
        self._best_R = np.zeros(len(self.references_RD), dtype=np.float32)
        self._above_R = np.empty_like(self._best_R)

        def work(start: int) -> NDArray[np.float32]:
            rows_bR = torch.from_numpy(self._matrix_NR[start : start + CHUNK_DOCUMENTS])
            chunk_bD = self.documents_ND[start : start + CHUNK_DOCUMENTS]
            product_into(rows_bR, chunk_bD, self.references_RD).clamp_(min=0)
            sums: NDArray[np.float32] = rows_bR.numpy().sum(1)
            return sums

        parts = list(self.workers.map(work, range(0, len(self.documents_ND), CHUNK_DOCUMENTS)))
        return np.concatenate(parts).tolist()

    def gains(self, documents: list[int]) -> list[float]:
        return [self._gain(document) for document in documents]

    def _gain(self, document: int) -> float:
        np.subtract(self._matrix_NR[document], self._best_R, out=self._above_R)
        np.maximum(self._above_R, 0, out=self._above_R)
        return float(self._above_R.sum())

    def select(self, document: int) -> None:
        np.maximum(self._best_R, self._matrix_NR[document], out=self._best_R)


class _OnDemand(_Similarities):
    first, most = FIRST_ON_DEMAND, MOST_ON_DEMAND

    def first_gains(self) -> list[float]:
        self._best_R = self.references_RD.new_zeros(len(self.references_RD))
        self._recent: dict[int, NDArray[np.float32]] = {}

        def work(start: int) -> Tensor:
            chunk_bD = self.documents_ND[start : start + CHUNK_DOCUMENTS]
            sums_b = chunk_bD.new_zeros(len(chunk_bD), dtype=torch.float64)
            for span_rD in torch.split(self.references_RD, SPAN_REFERENCES):
                sums_b += (chunk_bD @ span_rD.T).clamp_(min=0).sum(1, dtype=torch.float64)
            return sums_b.cpu()

        return torch.cat(
            list(self.workers.map(work, range(0, len(self.documents_ND), CHUNK_DOCUMENTS)))
        ).tolist()

    def gains(self, documents: list[int]) -> list[float]:
        rows_bD = self.documents_ND[torch.tensor(documents)]
        similar_bR = np.empty((len(documents), len(self.references_RD)), dtype=np.float32)

        def work(start: int) -> Tensor:
            span = slice(start, start + SPAN_REFERENCES)
            similar_br = rows_bD @ self.references_RD[span].T
            similar_bR[:, span] = similar_br.cpu().numpy()
            return similar_br.sub_(self._best_R[span]).clamp_(min=0).sum(1, dtype=torch.float64).cpu()

        total_b = torch.zeros(len(documents), dtype=torch.float64)
        for part_b in self.workers.map(work, range(0, len(self.references_RD), SPAN_REFERENCES)):
            total_b += part_b
        if len(self._recent) < RECENT:
            self._recent |= zip(documents, similar_bR, strict=True)
        return total_b.tolist()

    def select(self, document: int) -> None:
        if document in self._recent:
            similar_R = torch.from_numpy(self._recent[document]).to(self._best_R.device)
        else:
            similar_R = self.references_RD @ self.documents_ND[document]
        torch.maximum(self._best_R, similar_R, out=self._best_R)
        self._recent.clear()
