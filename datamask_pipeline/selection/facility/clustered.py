"""Neighbour lists of large blocks, from clusters near each reference's own. Knows no mask, quality or budget.

Shape suffixes: N documents, C clusters, D dimensions, q references of a cluster, p documents of its pool, v voters,
k list entries.

Every document is a reference. Those of a few similar clusters are compared with one pool: their own clusters, and
those whose centroids they are most similar to, by vote, until the pool holds `POOL` documents; then a document that lists
another is offered to that one's list in return. The work grows as N times the pool. What a list leaves out is
unknown: there is no ceiling, and certificates sample references instead (`sampled`).
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
POOL = 32_768
GROUP_REFERENCES = 256
"""References that share a pool: fewer find better pools, more are compared at a better rate."""
VOTERS, VOTES = 64, 32
"""References of a group that vote, and centroids that each names; the r-th one gets 1 / r of a vote."""
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
    num_documents = len(documents_ND)
    num_clusters = max(1, num_documents // DOCUMENTS_PER_CLUSTER)
    clusters = spherical_clusters(documents_ND, num_clusters, draws, workers, dtype)
    # Cluster by cluster, a pool is a few long copies instead of a row at a time.
    sorted_ND = documents_ND.to(dtype)[clusters.order_N.to(documents_ND.device)]
    buffer = _Buffer()

    def work(group: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
        members_q = clusters.order_N[clusters.offsets[group[0]] : clusters.offsets[group[1]]]
        found = [(torch.empty(0, length), torch.empty(0, length, dtype=torch.int64))]
        if len(members_q):
            voters_q = members_q[:: 1 + len(members_q) // VOTERS]
            spans = _pool(documents_ND[voters_q], clusters, range(*group), max(POOL, length))
            pool_p = torch.cat([clusters.order_N[start:stop] for start, stop in spans])
            pool_pD = buffer.gather([sorted_ND[start:stop] for start, stop in spans], len(pool_p))
            own_q = torch.arange(len(members_q))  # the group's own clusters come first in its pool
            for part_q, place_q in zip(
                torch.split(members_q, CHUNK_REFERENCES), torch.split(own_q, CHUNK_REFERENCES), strict=True
            ):
                found.append(_listed(documents_ND, part_q, place_q, pool_p, pool_pD, length))
        return members_q, torch.cat([part[0] for part in found]), torch.cat([part[1] for part in found])

    found = (parts or Parts()).gather(workers, work, clusters.groups(GROUP_REFERENCES))
    similarities_Nk = torch.empty(num_documents, length)
    documents_Nk = torch.empty(num_documents, length, dtype=torch.int64)
    for members_q, similarities_qk, documents_qk in found:
        similarities_Nk[members_q], documents_Nk[members_q] = similarities_qk, documents_qk
    found.clear()
    return _returned(documents_Nk, similarities_Nk)


class _Buffer(threading.local):
    """Memory of one thread's pools: a fresh block of this size would be cleared by the system each time."""

    held_pD: Tensor | None = None

    def gather(self, parts: list[Tensor], rows: int) -> Tensor:
        """The parts one below the other, valid until the next call."""
        if self.held_pD is None or len(self.held_pD) < rows:
            self.held_pD = parts[0].new_empty(rows + rows // 8, parts[0].shape[1])
        return torch.cat(parts, out=self.held_pD[:rows])


def _listed(
    documents_ND: Tensor, part_q: Tensor, own_q: Tensor, pool_p: Tensor, pool_pD: Tensor, length: int
) -> tuple[Tensor, Tensor]:
    """The nearest of a pool's documents to each reference, itself included: similarities falling, and rows."""
    rows_qD = documents_ND[part_q]
    _, places_qk = search(rows_qD.to(pool_pD.dtype), pool_pD, length, own_q)
    listed_qk = pool_p[places_qk.cpu()]
    exact_qk = listed_products(rows_qD, documents_ND, listed_qk.to(documents_ND.device)).cpu()
    sorted_qk, order_qk = exact_qk.sort(dim=1, descending=True, stable=True)
    return sorted_qk.clamp_(min=0), listed_qk.gather(1, order_qk)


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
