"""Lazy greedy on every similarity: the fair opponent of neighbour lists. Knows no list, quality or certificate.

Shape suffixes: N documents, R references, D embedding dimensions, b documents of a batch, P picks.

Minoux's accelerated greedy (1978): gains only fall, so old gains bound new ones and only the candidates at the top
of a heap are evaluated again. The similarities stay in memory where they fit; else each evaluation computes its
own, a batch of candidates at a time, since one candidate alone would wait for memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

MATRIX_BYTES = 4 << 30
"""Largest similarity matrix kept in memory."""
BATCH_IN_MEMORY, BATCH_ON_DEMAND = 1, 32
"""Candidates evaluated at once: more than one only pays where they share the reading of every embedding."""
CHUNK = 1024
REPORT_EVERY = 256

Gains = Callable[[Tensor, Tensor], Tensor]


def dense_lazy_greedy(
    documents_ND: Tensor,
    references_R: Tensor,
    linear_N: Tensor,
    weight: float,
    groups_N: Tensor,
    limits: Sequence[int],
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
        report: Called with the number of picks, once in a while.
    """
    references_RD = documents_ND[references_R]
    in_memory = len(documents_ND) * len(references_R) * 4 <= MATRIX_BYTES
    matrix_NR = (
        torch.cat([_similar(part, references_RD) for part in torch.split(documents_ND, CHUNK)])
        if in_memory
        else None
    )

    def similar(index_b: Tensor) -> Tensor:
        return _similar(documents_ND[index_b], references_RD) if matrix_NR is None else matrix_NR[index_b]

    scale = weight / len(references_R)
    best_R = torch.zeros(len(references_R))
    gains = [
        gain
        for index_b in torch.split(torch.arange(len(documents_ND)), CHUNK)
        for gain in (linear_N[index_b] + scale * _above(similar(index_b), best_R)).tolist()
    ]
    heap = [(-gain, document, 0) for document, gain in enumerate(gains)]
    heapq.heapify(heap)
    left, groups = list(limits), groups_N.tolist()
    picks: list[int] = []
    batch = BATCH_ON_DEMAND if matrix_NR is None else BATCH_IN_MEMORY
    wanted = sum(left)
    while len(picks) < wanted:
        if heap[0][2] == len(picks):
            document = heapq.heappop(heap)[1]
            if left[groups[document]] == 0:
                continue
            left[groups[document]] -= 1
            picks.append(document)
            torch.maximum(best_R, similar(torch.tensor([document]))[0], out=best_R)
            if len(picks) % REPORT_EVERY == 0:
                report(len(picks))
            continue
        stale = [heapq.heappop(heap)[1] for _ in range(min(batch, len(heap)))]
        index_b = torch.tensor(stale)
        fresh_b = linear_N[index_b] + scale * _above(similar(index_b), best_R)
        for document, gain in zip(stale, fresh_b.tolist(), strict=True):
            heapq.heappush(heap, (-gain, document, len(picks)))
    return torch.tensor(picks)


def _similar(documents_bD: Tensor, references_RD: Tensor) -> Tensor:
    return (documents_bD @ references_RD.T).clamp_(min=0)


def _above(similar_bR: Tensor, best_R: Tensor) -> Tensor:
    return (similar_bR - best_R).clamp_(min=0).sum(1, dtype=torch.float64)
