"""Similarities along a graph of nearest neighbours. Knows no quality, budget or learner.

Shape suffixes: N documents, n documents of a tile, k neighbours, E edges, G masks.
"""

from __future__ import annotations

import hashlib
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import pydantic
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamask_pipeline.diversity.base import DiversityMetric
from datamask_pipeline.diversity.swap_models import Places, QuadraticSwaps
from datamask_pipeline.settings import Settings

TILE_NUMBERS = 2**25
"""Products of a tile with all documents that are held at a time."""


class PairGraphConfig(Settings):
    """The graph."""

    neighbours: int = pydantic.Field(
        10, ge=1, description="Most similar other documents that each document has an edge to."
    )


@dataclass(frozen=True)
class SimilarityGraph:
    """Edges between documents, each once.

    Attributes:
        num_rows: N.
        left_E: The document of the smaller number.
        right_E: The other.
        similarity_E: float64, above 0.
    """

    num_rows: int
    left_E: NDArray[np.int64]
    right_E: NDArray[np.int64]
    similarity_E: NDArray[np.float64]

    @classmethod
    def empty(cls) -> SimilarityGraph:
        """Of no documents."""
        return cls(0, np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))

    def joined(self) -> NDArray[np.float32]:
        """The similarities of documents that share an edge, 0 elsewhere: shape (N, N)."""
        joined_NN = np.zeros((self.num_rows, self.num_rows), dtype=np.float32)
        joined_NN[self.left_E, self.right_E] = joined_NN[self.right_E, self.left_E] = self.similarity_E
        return joined_NN

    def within(
        self, place_N: NDArray[np.int64], within_E: NDArray[np.bool_], num_rows: int
    ) -> SimilarityGraph:
        """That of some documents alone.

        Args:
            place_N: The new number of each of them.
            within_E: Edges both of whose ends are among them.
            num_rows: How many they are.
        """
        left_e, right_e = place_N[self.left_E[within_E]], place_N[self.right_E[within_E]]
        return SimilarityGraph(num_rows, left_e, right_e, self.similarity_E[within_E])

    def sums(self, weights_N: NDArray[np.float64]) -> NDArray[np.float64]:
        """Each document's similarities to its neighbours, weighted by these: float64 of shape (N,)."""
        left_E, right_E = self.left_E, self.right_E
        ends_e, others_e = np.concatenate([left_E, right_E]), np.concatenate([right_E, left_E])
        taken_e = np.concatenate([self.similarity_E] * 2) * weights_N[others_e]
        return np.bincount(ends_e, taken_e, self.num_rows).astype(np.float64)


class PairGraph(DiversityMetric):
    """Minus what the selected documents have in common with their nearest neighbours that are selected too.

    Formula: ``-(1/K) sum over ordered pairs (i, j) of S that share an edge of max(0, <x_i, x_j>)``; an edge joins each
    document with its `neighbours` most similar ones.
    Source: the pairwise objective of Boether et al. 2025 (arXiv 2402.16442), whose graph has ten neighbours.
    Cost: O(N^2 d) once for the graph of a block, in tiles; then O(E) a value or all marginals.
    """

    name = "Pair_graph"
    of_samples = False
    of_products = True
    Config = PairGraphConfig
    config: PairGraphConfig

    def __init__(self, config: Settings | None = None) -> None:
        super().__init__(config)
        self._rows: weakref.ref[Tensor] | None = None
        self._digest, self._graph = b"", SimilarityGraph.empty()

    def graph(self, embeddings_ND: Tensor) -> SimilarityGraph:
        """The graph of these unit rows in float32; the last one is kept, wherever such rows lie, but for a sample's."""
        if self._rows is None or self._rows() is not embeddings_ND:
            rows_ND = embeddings_ND.float().contiguous()
            digest = hashlib.sha256(rows_ND.cpu().numpy().data).digest()
            if digest != self._digest:
                graph = nearest_graph(rows_ND, self.config.neighbours)
                if graph.num_rows < self._graph.num_rows:
                    return graph
                self._digest, self._graph = digest, graph
            self._rows = weakref.ref(embeddings_ND)
        return self._graph

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_rows": None}

    def values(self, embeddings_ND: Tensor, masks_GN: Tensor) -> Tensor:
        graph = self.graph(embeddings_ND)
        totals = []
        for mask_N in masks_GN.cpu().numpy():
            both_E = mask_N[graph.left_E] & mask_N[graph.right_E]
            totals.append(-2 * float(graph.similarity_E[both_E].sum()) / max(1, int(mask_N.sum())))
        return torch.tensor(totals, dtype=torch.float64)

    def marginals(self, embeddings_ND: Tensor, mask_N: Tensor) -> Tensor:
        graph, weights_N = self.graph(embeddings_ND), mask_N.cpu().double().numpy()
        return torch.from_numpy(-2 * graph.sums(weights_N) / max(1.0, float(weights_N.sum())))


class GraphSwaps(QuadraticSwaps):
    """What exchanges do to `PairGraph`, exactly.

    Args:
        joined_NN: As `SimilarityGraph.joined` tells.
        inside_I: What a mask is made of.
        count: K, what it is made of in the end.
    """

    def __init__(self, joined_NN: NDArray[np.float32], inside_I: Places, count: float) -> None:
        def interactions(left: Places, right: Places) -> NDArray[np.float64]:
            return joined_NN[np.ix_(left, right)].astype(np.float64) * (-2 / count)

        super().__init__(joined_NN[:, inside_I].sum(1, dtype=np.float64) * (-2 / count), interactions)

    def tangents(self) -> None:
        """None: where one of two neighbours comes in for the other, that gains more than derivatives differ."""


def nearest_graph(embeddings_ND: Tensor, neighbours: int) -> SimilarityGraph:
    """Edges between each document and the most similar others, whose similarity is above 0.

    Args:
        embeddings_ND: Unit rows.
        neighbours: Of each; all others where there are fewer.
    """
    num_rows = len(embeddings_ND)
    count = min(neighbours, num_rows - 1)
    tile = max(1, TILE_NUMBERS // num_rows)
    places, similarities = [], []
    for start in range(0, num_rows, tile):
        rows_nD = embeddings_ND[start : start + tile]
        products_nN = rows_nD @ embeddings_ND.T
        own_n = torch.arange(len(rows_nD), device=rows_nD.device)
        products_nN[own_n, start + own_n] = -torch.inf
        best_nk, place_nk = products_nN.topk(count, dim=1)
        similarities.append(best_nk.double().cpu())
        places.append(place_nk.cpu())
    similarity_Nk, place_Nk = torch.cat(similarities).numpy(), torch.cat(places).numpy()
    owner_Nk = np.broadcast_to(np.arange(num_rows)[:, None], place_Nk.shape)
    near_Nk = similarity_Nk > 0
    left_e = np.minimum(owner_Nk, place_Nk)[near_Nk]
    right_e = np.maximum(owner_Nk, place_Nk)[near_Nk]
    # An edge that both ends have is kept once; of its two products, which rounding may tell apart, the first.
    _, first_E = np.unique(left_e * num_rows + right_e, return_index=True)
    return SimilarityGraph(num_rows, left_e[first_E], right_e[first_E], similarity_Nk[near_Nk][first_E])


METRIC = PairGraph
