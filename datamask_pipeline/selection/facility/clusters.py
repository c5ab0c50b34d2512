"""Cutting a block into clusters of similar documents. Knows no list, mask or quality.

Shape suffixes: N documents, n documents of a sample or chunk, C clusters, F families, D embedding dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from datamask_pipeline.selection.kmeans import nearest_means, unit_means
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.rows import MemoryRows, Rows

SAMPLE_PER_CLUSTER = 8
ROUNDS = 4
CHUNK = 4096
CLUSTERS_PER_FAMILY = 8
NEAR_FAMILIES = 32
"""Families whose clusters a document is compared with: those most similar to its own, which is one of them."""


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """A partition of the documents.

    Attributes:
        centroids_CD: float32 of unit norm, similar ones side by side: those of one family are consecutive.
        families_C: int64 family of each cluster, rising; every family has one.
        families_FD: float32 centroids of the families.
        order_N: int64 rows of the block, cluster by cluster, rising within one.
        offsets: Where each cluster starts in that order, and its end; a cluster may be empty.
    """

    centroids_CD: Tensor
    families_C: Tensor
    families_FD: Tensor
    order_N: Tensor
    offsets: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.centroids_CD)

    def members(self, first: int, last: int) -> Tensor:
        """The rows of consecutive clusters, int64."""
        return self.order_N[self.offsets[first] : self.offsets[last]]

    def near(self, rows_vD: Tensor, num_documents: int) -> Tensor:
        """The clusters of the families most similar to the mean of some rows that hold so many documents: int64."""
        order_F = torch.argsort(self.families_FD @ rows_vD.mean(0), descending=True, stable=True).cpu()
        rank_F = torch.empty_like(order_F)
        rank_F[order_F] = torch.arange(len(order_F))
        sizes_C = torch.tensor(self.offsets).diff()
        held_F = torch.zeros_like(order_F).index_add_(0, self.families_C, sizes_C)[order_F].cumsum(0)
        wanted = int((held_F < num_documents).sum()) + 1
        return torch.nonzero(rank_F[self.families_C] < wanted).squeeze(1)

    def groups(self, num_documents: int) -> list[tuple[int, int]]:
        """Ranges of clusters of one family that hold about so many documents together."""
        groups, first, families = [], 0, self.families_C.tolist()
        for last in range(1, len(self) + 1):
            held = self.offsets[last] - self.offsets[first]
            if last == len(self) or held >= num_documents or families[last] != families[first]:
                groups.append((first, last))
                first = last
        return groups


def spherical_clusters(
    documents_ND: Tensor, num_clusters: int, draws: torch.Generator, workers: Workers, dtype: torch.dtype
) -> Clusters:
    """Spherical k-means on a sample, then every document at the nearest centroid found.

    Families first, then each family's share of the clusters within it; documents find theirs through the families.
    So the work does not grow as the number of documents times that of clusters.
    """
    size = min(len(documents_ND), SAMPLE_PER_CLUSTER * num_clusters)
    sample = MemoryRows(documents_ND[torch.randperm(len(documents_ND), generator=draws)[:size]], CHUNK)
    families_FD = _means(sample, max(1, num_clusters // CLUSTERS_PER_FAMILY), dtype, workers)
    owner_n, _ = nearest_means(sample, families_FD, dtype, workers)
    held_F, families_n = torch.unique(owner_n, return_inverse=True)
    families_FD = families_FD[held_F.to(families_FD.device)]
    members = torch.split(torch.argsort(families_n, stable=True), torch.bincount(families_n).tolist())

    def split(members_m: Tensor) -> Tensor:
        share = len(members_m) / sample.num_rows
        return _means(sample.chosen(members_m), math.ceil(share * num_clusters), dtype)

    found = list(workers.map(split, members))
    centroids_CD = torch.cat(found)
    families_C = torch.repeat_interleave(torch.tensor([len(part_cD) for part_cD in found]))
    owner_N = _assign_by_family(documents_ND, centroids_CD, families_C, families_FD, workers, dtype)
    ends_C = torch.bincount(owner_N, minlength=len(centroids_CD)).cumsum(0)
    return Clusters(
        centroids_CD=centroids_CD,
        families_C=families_C,
        families_FD=families_FD,
        order_N=torch.argsort(owner_N, stable=True),
        offsets=(0, *ends_C.tolist()),
    )


def _means(rows: Rows, number: int, dtype: torch.dtype, workers: Workers | None = None) -> Tensor:
    """Unit means of k-means from the first rows."""
    return unit_means(rows, rows.chunk(0, min(number, rows.num_rows)), ROUNDS, dtype, workers)


def _assign_by_family(
    documents_ND: Tensor,
    centroids_CD: Tensor,
    families_C: Tensor,
    families_FD: Tensor,
    workers: Workers,
    dtype: torch.dtype,
) -> Tensor:
    """The nearest centroid of each document among those of the families most similar to its own: int64 (N,)."""
    ends = [0, *torch.bincount(families_C).cumsum(0).tolist()]
    near_Fn = (families_FD @ families_FD.T).topk(min(NEAR_FAMILIES, len(families_FD)), dim=1).indices.tolist()
    family_N, _ = nearest_means(MemoryRows(documents_ND, CHUNK), families_FD, dtype, workers)
    order_N = torch.argsort(family_N, stable=True)
    members = torch.split(order_N, torch.bincount(family_N, minlength=len(families_FD)).tolist())

    def work(family: int) -> Tensor:
        rows_m = members[family].to(documents_ND.device)
        near_c = torch.cat([torch.arange(ends[near], ends[near + 1]) for near in sorted(near_Fn[family])])
        similar_mc = documents_ND[rows_m].to(dtype) @ centroids_CD[near_c.to(centroids_CD.device)].to(dtype).T
        return near_c[similar_mc.argmax(1).cpu()]

    owner_N = torch.empty_like(family_N)
    owner_N[order_N] = torch.cat(list(workers.map(work, range(len(families_FD)))))
    return owner_N
