"""Cutting a block into clusters of similar documents. Knows no list, mask or quality.

Shape suffixes: N documents, n documents of a sample or chunk, C clusters, D embedding dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from datamask_pipeline.selection.parallel import Workers

SAMPLE_PER_CLUSTER = 16
ROUNDS = 6
CHUNK = 4096


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """A partition of the documents.

    Attributes:
        centroids_CD: float32 of unit norm.
        order_N: int64 rows of the block, cluster by cluster, rising within one.
        offsets: Where each cluster starts in that order, and its end; a cluster may be empty.
    """

    centroids_CD: Tensor
    order_N: Tensor
    offsets: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.centroids_CD)


def spherical_clusters(
    documents_ND: Tensor, num_clusters: int, draws: torch.Generator, workers: Workers, dtype: torch.dtype
) -> Clusters:
    """Spherical k-means on a sample (Dhillon and Modha 2001), then every document at its nearest centroid.

    A centroid that lost its members keeps its place.
    """
    size = min(len(documents_ND), SAMPLE_PER_CLUSTER * num_clusters)
    sample_nD = documents_ND[torch.randperm(len(documents_ND), generator=draws)[:size]]
    centroids_CD = sample_nD[:num_clusters].clone()
    for _ in range(ROUNDS):
        owner_n = _assign(sample_nD, centroids_CD, workers, dtype)
        sums_CD = torch.zeros_like(centroids_CD, dtype=torch.float64)
        sums_CD.index_add_(0, owner_n.to(sums_CD.device), sample_nD.double())
        norms_C1 = torch.linalg.vector_norm(sums_CD, dim=1, keepdim=True)
        centroids_CD = torch.where(norms_C1 > 0, (sums_CD / norms_C1).float(), centroids_CD)
    owner_N = _assign(documents_ND, centroids_CD, workers, dtype)
    order_N = torch.argsort(owner_N, stable=True)
    ends_C = torch.bincount(owner_N, minlength=num_clusters).cumsum(0)
    return Clusters(centroids_CD=centroids_CD, order_N=order_N, offsets=(0, *ends_C.tolist()))


def _assign(rows_nD: Tensor, centroids_CD: Tensor, workers: Workers, dtype: torch.dtype) -> Tensor:
    search_DC = centroids_CD.to(dtype).T

    def work(start: int) -> Tensor:
        return (rows_nD[start : start + CHUNK].to(dtype) @ search_DC).argmax(1).cpu()

    return torch.cat(list(workers.map(work, range(0, len(rows_nD), CHUNK))))
