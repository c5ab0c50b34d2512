"""Neighbour lists of large blocks, from clusters near each reference's own. Knows no mask, quality or budget.

Shape suffixes: N documents, C clusters, D dimensions, d fewer dimensions, q references of a group, p documents of its
pool, v voters, n documents near a group, k list entries.

Every document is a reference. Those of a few similar clusters form a group and are compared with one pool, twice.
First roughly and in few dimensions, with their own clusters and those whose centroids they are most similar to, by
vote, until the pool holds `POOL` documents. Then in float32 with all that is on the lists of those on their lists: who
is near those near me. At last a document that lists another is offered to that one's list in return. The work grows as
N times the pools. What a list leaves out is unknown: there is no ceiling, and certificates sample references instead
(`sampled`).
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from datamask_pipeline.selection.facility.clusters import Clusters, spherical_clusters
from datamask_pipeline.selection.facility.lists import NeighbourLists
from datamask_pipeline.selection.facility.nearest import (
    CHUNK_REFERENCES,
    announce_sparse,
    listed_products,
    search,
)
from datamask_pipeline.selection.facility.parts import Parts
from datamask_pipeline.selection.parallel import Workers

DOCUMENTS_PER_CLUSTER = 64
POOL = 16_384
NEAR_POOL = 4096
"""Most documents of the second pool, those found most often first: it rarely holds half as many."""
GROUP_REFERENCES = 256
"""References that share a pool: fewer find better pools, more are compared at a better rate."""
VOTERS, VOTES = 64, 32
"""References of a group that vote, and centroids that each names; the r-th one gets 1 / r of a vote."""
MOST_DIMENSIONS, SAMPLE_DOCUMENTS = 128, 4096
"""Of the rough comparison, and documents from which its directions are taken; what it misorders is found again."""
CHUNK_ROWS = 4096
ELIGIBLE = 4
"""Documents of the families that may be voted for, as a multiple of the pool's."""


def clustered_lists(
    documents_ND: Tensor,
    length: int,
    draws: torch.Generator,
    workers: Workers,
    dtype: torch.dtype,
    parts: Parts | None = None,
) -> NeighbourLists:
    """Approximate lists of the `length` most similar documents of every document, similarities in float32.

    `parts` are those of an earlier run of the same search, and who is told of new ones.
    """
    announce_sparse()
    parts = parts or Parts()
    num_clusters = max(1, len(documents_ND) // DOCUMENTS_PER_CLUSTER)
    clusters = spherical_clusters(documents_ND, num_clusters, draws, workers, dtype)
    groups = clusters.groups(GROUP_REFERENCES)
    flat_Nd = _flattened(documents_ND, draws, workers, dtype)
    rough_Nk = _rough_lists(documents_ND, flat_Nd, clusters, groups, length, workers, parts)
    del flat_Nd
    documents_Nk, similarities_Nk = _fine_lists(documents_ND, rough_Nk, clusters, groups, workers, parts)
    del rough_Nk
    parts.found.clear()
    return _returned(documents_Nk, similarities_Nk)


def _rough_lists(
    documents_ND: Tensor,
    flat_Nd: Tensor,
    clusters: Clusters,
    groups: list[tuple[int, int]],
    length: int,
    workers: Workers,
    parts: Parts,
) -> Tensor:
    """Rows of those nearest to each document in its group's pool of clusters: int32 (N, k), in no order."""
    # Cluster by cluster, a pool is a few long copies instead of a row at a time.
    sorted_Nd = flat_Nd[clusters.order_N.to(flat_Nd.device)]
    buffer = _Buffer()

    def work(group: tuple[int, int]) -> tuple[Tensor]:
        members_q = clusters.members(*group)
        found = [torch.empty(0, length, dtype=torch.int32)]
        if len(members_q):
            voters_q = members_q[:: 1 + len(members_q) // VOTERS]
            spans = _pool(documents_ND[voters_q], clusters, range(*group), max(POOL, length))
            pool_p = torch.cat([clusters.order_N[start:stop] for start, stop in spans])
            pool_pd = buffer.gather([sorted_Nd[start:stop] for start, stop in spans], len(pool_p))
            own_q = torch.arange(len(members_q))  # the group's own clusters come first in its pool
            for place_q in torch.split(own_q, CHUNK_REFERENCES):
                _, places_qk = search(pool_pd[place_q], pool_pd, length, place_q)
                found.append(pool_p[places_qk.cpu()].int())
        return (torch.cat(found),)

    rough_Nk = torch.empty(len(flat_Nd), length, dtype=torch.int32)
    found = parts.gather(workers, work, groups, later=len(groups))
    for group, (rows_qk,) in zip(groups, found, strict=True):
        rough_Nk[clusters.members(*group)] = rows_qk
    return rough_Nk


def _fine_lists(
    documents_ND: Tensor,
    rough_Nk: Tensor,
    clusters: Clusters,
    groups: list[tuple[int, int]],
    workers: Workers,
    parts: Parts,
) -> tuple[Tensor, Tensor]:
    """Rows of those nearest to each document among who is near those near its group, and their similarities, falling."""
    length = rough_Nk.shape[1]

    def work(group: tuple[int, int]) -> tuple[Tensor, Tensor]:
        members_q = clusters.members(*group)
        found = [(torch.empty(0, length, dtype=torch.int32), torch.empty(0, length))]
        if len(members_q):
            pool_p = _near_pool(rough_Nk, members_q, max(NEAR_POOL, length, 2 * len(members_q)))
            pool_pD = documents_ND[pool_p.to(documents_ND.device)]
            own_q = torch.searchsorted(pool_p, members_q)
            for place_q in torch.split(own_q, CHUNK_REFERENCES):
                found.append(_listed(pool_p, pool_pD, place_q, length))
        return torch.cat([part[0] for part in found]), torch.cat([part[1] for part in found])

    documents_Nk, similarities_Nk = torch.empty_like(rough_Nk), torch.empty(rough_Nk.shape)
    for group, (rows_qk, similarities_qk) in zip(groups, parts.gather(workers, work, groups), strict=True):
        members_q = clusters.members(*group)
        documents_Nk[members_q], similarities_Nk[members_q] = rows_qk, similarities_qk
    return documents_Nk.long(), similarities_Nk


def _flattened(documents_ND: Tensor, draws: torch.Generator, workers: Workers, dtype: torch.dtype) -> Tensor:
    """The documents in the `MOST_DIMENSIONS` directions in which a sample of them is largest."""
    num_documents, dim = documents_ND.shape
    if dim <= MOST_DIMENSIONS:
        return documents_ND.to(dtype)
    drawn_n = torch.randperm(num_documents, generator=draws)[:SAMPLE_DOCUMENTS]
    sample_nD = documents_ND[drawn_n.to(documents_ND.device)].double()
    directions_DD = torch.linalg.eigh(sample_nD.T @ sample_nD).eigenvectors
    basis_Dd = directions_DD[:, -MOST_DIMENSIONS:].float()

    def project(start: int) -> Tensor:
        return (documents_ND[start : start + CHUNK_ROWS] @ basis_Dd).to(dtype)

    return torch.cat(list(workers.map(project, range(0, num_documents, CHUNK_ROWS))))


class _Buffer(threading.local):
    """Memory of one thread's pools: a fresh block of this size would be cleared by the system each time."""

    held_pD: Tensor | None = None

    def gather(self, parts: list[Tensor], rows: int) -> Tensor:
        """The parts one below the other, valid until the next call."""
        if self.held_pD is None or len(self.held_pD) < rows:
            self.held_pD = parts[0].new_empty(rows + rows // 8, parts[0].shape[1])
        return torch.cat(parts, out=self.held_pD[:rows])


def _near_pool(rough_Nk: Tensor, members_q: Tensor, size: int) -> Tensor:
    """Who is on the lists of those on the members' lists, the members among them: rising rows, int64."""
    near_n = torch.unique(rough_Nk[members_q]).long()
    found_p, times_p = torch.unique(rough_Nk[near_n], return_counts=True)
    if len(found_p) > size:
        times_p[torch.isin(found_p, members_q.int())] = len(rough_Nk)
        found_p = found_p[torch.argsort(times_p, descending=True, stable=True)[:size]].sort().values
    return found_p.long()


def _listed(pool_p: Tensor, pool_pD: Tensor, own_q: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """The nearest of a pool's documents to some of them, each itself included: rows, and similarities falling."""
    rows_qD = pool_pD[own_q.to(pool_pD.device)]
    _, places_qk = search(rows_qD, pool_pD, length, own_q)
    exact_qk = listed_products(rows_qD, pool_pD, places_qk).cpu()
    sorted_qk, order_qk = exact_qk.sort(dim=1, descending=True, stable=True)
    return pool_p[places_qk.cpu().gather(1, order_qk)].int(), sorted_qk.clamp_(min=0)


def _pool(voters_vD: Tensor, clusters: Clusters, own: range, size: int) -> list[tuple[int, int]]:
    """The spans of the voters' own clusters, then of those they name: most votes first, then by similarity to their mean.

    Others are the clusters of near families, `ELIGIBLE` times as many documents as the pool shall hold.
    """
    near_c = clusters.near(voters_vD, ELIGIBLE * size)
    similar_vc = voters_vD @ clusters.centroids_CD[near_c.to(voters_vD.device)].T
    named = similar_vc.topk(min(VOTES, len(near_c)), dim=1).indices
    weights = 1 / torch.arange(1, named.shape[1] + 1, dtype=torch.float64)
    votes_c = (similar_vc.mean(0) - 1).double().cpu() * 1e-6
    votes_c.index_add_(0, named.reshape(-1).cpu(), weights.repeat(len(voters_vD)))
    named_c = near_c[torch.argsort(votes_c, descending=True, stable=True)].tolist()
    spans: list[tuple[int, int]] = []
    held = 0
    for cluster in [*own, *(cluster for cluster in named_c if cluster not in own)]:
        if held >= size and cluster not in own:
            break
        start, stop = clusters.offsets[cluster : cluster + 2]
        spans.append((start, stop))
        held += stop - start
    return spans


def _returned(documents_Nk: Tensor, similarities_Nk: Tensor) -> NeighbourLists:
    """The document itself, and the best others of its own list and of the documents that list it: k in all."""
    num_documents, length = documents_Nk.shape
    lister_E = torch.arange(num_documents).repeat_interleave(length)
    listed_E, similarities_E = documents_Nk.reshape(-1), similarities_Nk.reshape(-1)
    pairs_E = torch.cat([lister_E * num_documents + listed_E, listed_E * num_documents + lister_E])
    pairs_U, place_E = torch.unique(pairs_E, return_inverse=True)
    del pairs_E, lister_E
    # A pair found from both sides has the same similarity: products are summed over dimensions in one order.
    similarities_U = torch.empty(len(pairs_U))
    similarities_U[place_E] = similarities_E.repeat(2)
    itself_U = pairs_U // num_documents == pairs_U % num_documents
    order_U = torch.argsort(similarities_U + itself_U, descending=True, stable=True)
    order_U = order_U[torch.argsort(pairs_U[order_U] // num_documents, stable=True)]
    starts_N = torch.searchsorted(pairs_U, torch.arange(num_documents) * num_documents)
    kept_Nk = order_U[starts_N[:, None] + torch.arange(length)]
    # Beside exact copies, a document's product with itself may be a rounding below theirs.
    similarities_Nk, place_Nk = similarities_U[kept_Nk].sort(dim=1, descending=True, stable=True)
    return NeighbourLists(
        num_documents=num_documents,
        documents_Rk=(pairs_U[kept_Nk] % num_documents).gather(1, place_Nk),
        similarities_Rk=similarities_Nk,
        ceiling_R=None,
    )
