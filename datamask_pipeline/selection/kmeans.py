"""Spherical k-means (Dhillon and Modha 2001) from given first means. Knows no list, mask or quality.

Shape suffixes: N documents, n rows of a chunk, C clusters, D embedding dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from datamask_pipeline.selection.parallel import Outcome, Span, Workers
from datamask_pipeline.selection.rows import Rows


def unit_means(
    rows: Rows, first_CD: Tensor, num_rounds: int, dtype: torch.dtype, workers: Workers | None = None
) -> Tensor:
    """The clusters' unit means after so many rounds; a cluster that lost its last document keeps its mean.

    Args:
        rows: The documents.
        first_CD: float32 means to start from.
        num_rounds: How often every document is assigned and the means are taken anew.
        dtype: Arithmetic of the products; sums are float64.
        workers: Threads over chunks; None within one of them.

    Returns:
        float32 of shape (C, D).
    """
    means_CD = first_CD
    for _ in range(num_rounds):
        sums_CD = _sums(rows, means_CD, dtype, workers)
        norms_C1 = torch.linalg.vector_norm(sums_CD, dim=1, keepdim=True)
        means_CD = torch.where(norms_C1 > 0, (sums_CD / norms_C1).float(), means_CD)
    return means_CD


def nearest_means(
    rows: Rows, means_CD: Tensor, dtype: torch.dtype, workers: Workers | None = None
) -> tuple[Tensor, Tensor]:
    """The most similar mean of each document, int64 (N,), and the product with it in `dtype`; both on the CPU."""
    search_DC = means_CD.to(dtype).T

    def work(span: Span) -> tuple[Tensor, Tensor]:
        closeness_n, cluster_n = (rows.chunk(*span).to(dtype) @ search_DC).max(1)
        return cluster_n.cpu(), closeness_n.cpu()

    cluster_parts, closeness_parts = zip(*_each(work, rows.spans(), workers), strict=True)
    return torch.cat(cluster_parts), torch.cat(closeness_parts)


def _sums(rows: Rows, means_CD: Tensor, dtype: torch.dtype, workers: Workers | None) -> Tensor:
    """The sum of the documents nearest to each mean: float64 of shape (C, D)."""
    search_DC = means_CD.to(dtype).T

    def work(span: Span) -> Tensor:
        rows_nD = rows.chunk(*span)
        cluster_n = (rows_nD.to(dtype) @ search_DC).argmax(1)
        return torch.zeros_like(means_CD, dtype=torch.float64).index_add_(0, cluster_n, rows_nD.double())

    sums_CD = torch.zeros_like(means_CD, dtype=torch.float64)
    for part_CD in _each(work, rows.spans(), workers):
        sums_CD += part_CD
    return sums_CD


def _each(
    function: Callable[[Span], Outcome], spans: Iterable[Span], workers: Workers | None
) -> Iterable[Outcome]:
    return map(function, spans) if workers is None else workers.map(function, spans)
