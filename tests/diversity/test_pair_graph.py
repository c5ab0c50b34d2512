"""Similarities along a graph: the formula, the edges, and what is kept of the last block."""

import pickle

import numpy as np
import pytest
import torch

from datamask_pipeline.diversity.pair_graph import PairGraph, PairGraphConfig, nearest_graph

N, D, K = 60, 5, 3


@pytest.fixture
def rows_ND() -> torch.Tensor:
    rows = torch.randn(N, D, generator=torch.Generator().manual_seed(4)) + 0.3
    return rows / rows.norm(dim=1, keepdim=True)


def similarities(rows_ND: torch.Tensor) -> np.ndarray:
    """The whole matrix, 0 where there is no edge; one document after the other."""
    products = rows_ND.double().numpy() @ rows_ND.double().numpy().T
    found = np.zeros((N, N))
    for row in range(N):
        others = [other for other in np.argsort(-products[row], kind="stable") if other != row]
        for other in others[:K]:
            found[row, other] = found[other, row] = max(0.0, products[row, other])
    return found


def test_value_and_marginals_are_the_formula(rows_ND: torch.Tensor) -> None:
    metric, known_NN = PairGraph(PairGraphConfig(neighbours=K)), similarities(rows_ND)
    draws = torch.Generator().manual_seed(5)
    masks_GN = torch.stack([torch.rand(N, generator=draws) < share for share in (0.1, 0.4, 0.9)])
    wanted = [-known_NN[np.ix_(mask, mask)].sum() / mask.sum() for mask in masks_GN.numpy()]
    assert metric.values(rows_ND, masks_GN).tolist() == pytest.approx(wanted, rel=1e-6)
    mask = masks_GN[1].numpy()
    changes = -2 * known_NN[:, mask].sum(1) / mask.sum()
    assert metric.marginals(rows_ND, masks_GN[1]).tolist() == pytest.approx(changes.tolist(), rel=1e-6)


def test_edges_are_those_of_either_end_each_once(
    rows_ND: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = nearest_graph(rows_ND, K)
    pairs = set(zip(graph.left_E.tolist(), graph.right_E.tolist(), strict=True))
    assert len(pairs) == len(graph.left_E)
    assert pairs == set(
        zip(*(places.tolist() for places in np.nonzero(np.triu(similarities(rows_ND)))), strict=True)
    )
    monkeypatch.setattr("datamask_pipeline.diversity.pair_graph.TILE_NUMBERS", 7 * N)
    by_tiles = nearest_graph(rows_ND, K)
    assert by_tiles.left_E.tolist() == graph.left_E.tolist()
    assert by_tiles.similarity_E.tolist() == pytest.approx(graph.similarity_E.tolist(), rel=1e-6)


def test_fewer_documents_than_neighbours_all_have_edges() -> None:
    rows_ND = torch.ones(4, 3) / 3**0.5
    assert len(nearest_graph(rows_ND, 10).left_E) == 6
    assert len(nearest_graph(torch.eye(4), 10).left_E) == 0, "nothing in common"


def test_the_graph_is_that_of_the_rows_at_hand(rows_ND: torch.Tensor) -> None:
    metric = PairGraph(PairGraphConfig(neighbours=K))
    graph = metric.graph(rows_ND)
    assert metric.graph(rows_ND.double()) is graph, "the same rows in another type"
    assert metric.graph(rows_ND[:9]).num_rows == 9
    assert metric.graph(rows_ND.double()) is graph, "a sample's takes no place"
    assert metric.graph(rows_ND.flip(0)) is not graph
    again = pickle.loads(pickle.dumps(metric))
    assert again.graph(rows_ND).left_E.tolist() == graph.left_E.tolist()
