"""What random masks cover on average, from sorted similarities instead of draws. Knows no learner, quality or seed.

Shape suffixes: N documents, R references, r sampled references, C candidates, k list entries, G groups, D dimensions.

A reference whose documents stand in order of similarity is covered by the j-th where a mask holds it and none before it. In
masks of a fixed number of documents of each group, the chance that none of the first j is held is a product of ratios
of documents left, so the expected best similarity is a weighted sum along the list.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from datamask_pipeline.selection.facility.nearest import nearest
from datamask_pipeline.selection.parallel import Workers

TAIL = 2.0**-10
"""Chance that a mask holds none of a list's documents: such a mask counts as covering as much as its last one."""
PAIRS, ENTRIES, FEWEST = 200_000_000, 4_000_000, 2048
"""Similarities looked at, entries of lists, and references at least; of more, a sample that no seed of a run moves is
taken. Lists of more than twice as many entries are not worth their time: masks of so few documents are cheaper drawn."""


def sampled_references(references_R: Tensor, num_documents: int, length: int = 1) -> Tensor:
    """All references where there are few documents, else the same ones for every seed of a run: int64, rising."""
    size = max(FEWEST, min(PAIRS // num_documents, ENTRIES // length))
    if size >= len(references_R):
        return references_R
    draws = torch.Generator().manual_seed(0)
    return references_R[torch.randperm(len(references_R), generator=draws)[:size].sort().values]


def expected_coverage(
    documents_ND: Tensor,
    references_R: Tensor,
    groups_N: Tensor,
    limits: Sequence[float],
    workers: Workers,
    dtype: torch.dtype,
) -> float | None:
    """The mean coverage of uniformly random masks, or None where masks hold so few documents, of all or of a group,
    that lists would be long.

    Args:
        documents_ND: Unit rows, float32.
        references_R: int64 rows that are references; of many, a sample stands for all.
        groups_N: int64 group of each document.
        limits: Documents of each group.
        workers: Threads over chunks of references.
        dtype: Arithmetic of the search.
    """
    limits_G = torch.tensor(limits, dtype=torch.float64)
    sizes_G = torch.bincount(groups_N, minlength=len(limits_G))
    candidates_C = torch.nonzero(limits_G[groups_N] > 0).squeeze(1)
    # A list may be of the group alone of which masks hold the smallest share.
    ratio = float((limits_G / sizes_G)[limits_G > 0].min())
    length = 1 if ratio >= 1 else math.ceil(math.log(TAIL) / math.log1p(-ratio))
    length = min(length, len(candidates_C))
    references_r = sampled_references(references_R, len(documents_ND), length)
    if length * len(references_r) > 2 * ENTRIES:
        return None
    lists = nearest(documents_ND, references_r, length, workers, dtype=dtype, candidates_C=candidates_C)
    missing_rk = _none_held(groups_N[lists.documents_Rk], sizes_G, limits_G).cumprod(1)
    reached_rk = torch.ones_like(missing_rk)
    reached_rk[:, 1:] = missing_rk[:, :-1]
    similarities_rk = lists.similarities_Rk.double()
    best_r = ((reached_rk - missing_rk) * similarities_rk).sum(1) + missing_rk[:, -1] * similarities_rk[:, -1]
    return float(best_r.mean())


def _none_held(groups_rk: Tensor, sizes_G: Tensor, limits_G: Tensor) -> Tensor:
    """The chance that a mask without the documents before one on its list lacks that one too: float64 (r, k)."""
    sorted_rk, order_rk = torch.sort(groups_rk, dim=1, stable=True)
    places_k = torch.arange(groups_rk.shape[1])
    starts_rk = places_k.expand_as(sorted_rk).clone()
    starts_rk[:, 1:][sorted_rk[:, 1:] == sorted_rk[:, :-1]] = 0
    earlier_rk = torch.empty_like(order_rk).scatter_(1, order_rk, places_k - starts_rk.cummax(1).values)
    left_rk = (sizes_G[groups_rk] - earlier_rk).clamp_(min=1)
    return (1 - limits_G[groups_rk] / left_rk).clamp_(min=0)
