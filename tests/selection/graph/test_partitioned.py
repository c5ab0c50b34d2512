"""Bounding settles what every best mask has; partitioned greedy keeps its budget, and is greedy where there is one part."""

import itertools

import numpy as np
import pytest
import torch
from graph_blocks import block, every, posed, worth

from datamask_pipeline import select_documents
from datamask_pipeline.diversity.base import DiversityMetric
from datamask_pipeline.diversity.pair_graph import SimilarityGraph
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.graph.bounding import bounded
from datamask_pipeline.selection.graph.objective import GraphObjective


@pytest.mark.parametrize("groups", [1, 2])
def test_what_bounding_settles_is_so_in_every_best_mask(groups: int) -> None:
    settled = 0
    for seed, lamb in itertools.product(range(10), (0.4, 0.95, 0.98)):
        objective, budget, known = posed(11, seed, 4, groups=groups, lamb=lamb)
        masks = every(budget)
        values = np.array([worth(objective, known, mask) for mask in masks])
        inside, outside = bounded(objective, budget)
        for mask in itertools.compress(masks, values > values.max() - 1e-9):
            assert mask[inside].all()
            assert not mask[outside].any()
        settled += int(inside.sum() + outside.sum())
    assert settled > 50


def test_who_is_out_takes_nothing_and_equals_stay_open() -> None:
    """Document 0 shares an edge with document 1, which is out; then it adds more than document 2, surely."""
    graph = SimilarityGraph(3, np.array([0]), np.array([1]), np.array([0.5]))
    _, budget, _ = posed(3, 1, 1)
    linear = np.array([1.0, 0.1, 0.95])
    inside, outside = bounded(GraphObjective(graph=graph, linear_N=linear, weight=1.0, offset=0.0), budget)
    assert (inside.tolist(), outside.tolist()) == ([True, False, False], [False, True, True])
    alike = np.array([0.1 + 0.2, 0.1, 0.3])
    inside, outside = bounded(GraphObjective(graph=graph, linear_N=alike, weight=0.0, offset=0.0), budget)
    assert (inside.tolist(), outside.tolist()) == ([False] * 3, [False, True, False])


def test_quality_alone_is_settled_as_a_whole() -> None:
    objective, budget, _ = posed(60, 1, 20, groups=3, lamb=1.0)
    inside, outside = bounded(objective, budget)
    assert (inside != outside).all()
    assert inside.tolist() == budget.best(budget.costs_N * 0 + objective.linear_N).tolist()


@pytest.mark.parametrize(("rounds", "quotas"), [(1, None), (3, {"a": 1.0, "b": 0.0})])
def test_one_partition_is_greedy(rounds: int, quotas: dict[str, float] | None) -> None:
    """Also where documents of a group that has no place would be in the way of others."""
    rows, quality = block(150, 8, 4)
    common = {"ratio": 0.2, "lamb": 0.3, "diversity": "Pair_graph", "seed": 2, "quotas": quotas}
    common |= {"groups": ["a", "a", "b"] * 50} if quotas else {}
    plain = select_documents(rows, quality, policy="greedy", **common)
    settings = {"num_partitions": 1, "num_rounds": rounds, "bounding": False}
    whole = select_documents(rows, quality, policy="partitioned_greedy", **settings, **common)
    assert whole.mask.tolist() == plain.mask.tolist()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("quotas", [None, {"a": 0.2, "b": 0.8}])
def test_the_budget_is_kept_and_more_rounds_lose_less(quotas: dict[str, float] | None) -> None:
    values: dict[int, list[float]] = {1: [], 6: []}
    for seed, rounds in itertools.product(range(4), values):
        rows, quality = block(203, 8, seed)
        result = select_documents(
            rows,
            quality,
            num_documents=41,
            lamb=0.3,
            diversity="Pair_graph",
            policy="partitioned_greedy",
            num_partitions=5,
            num_rounds=rounds,
            groups=["a" if row % 3 else "b" for row in range(203)] if quotas else None,
            quotas=quotas,
            seed=seed,
        )
        assert result.mask.sum() == 41
        assert not quotas or result.mask[np.arange(203) % 3 > 0].sum() == 8
        values[rounds].append(result.objective.value)
    assert np.mean(values[6]) > np.mean(values[1])


def test_as_few_partitions_as_hold_what_is_left_lose_less() -> None:
    values: dict[bool, list[float]] = {True: [], False: []}
    for seed, adaptive in itertools.product(range(2), values):
        rows, quality = block(203, 8, seed)
        result = select_documents(
            rows,
            quality,
            num_documents=41,
            lamb=0.3,
            diversity="Pair_graph",
            policy="partitioned_greedy",
            num_partitions=5,
            adaptive=adaptive,
            seed=seed,
        )
        assert result.mask.sum() == 41
        values[adaptive].append(result.objective.value)
    assert np.mean(values[True]) > np.mean(values[False]) + 0.05


def test_more_partitions_than_documents_are_left() -> None:
    rows, quality = block(12, 6, 1)
    result = select_documents(
        rows,
        quality,
        num_documents=3,
        diversity="Pair_graph",
        policy="partitioned_greedy",
        num_partitions=40,
    )
    assert result.mask.sum() == 3


class AnotherGraph(DiversityMetric):
    """One of another package, which calls something of its own a graph."""

    name = "another"
    graph = "a plot of its values"

    def values(self, embeddings_ND: torch.Tensor, masks_GN: torch.Tensor) -> torch.Tensor:
        return masks_GN.double() @ embeddings_ND[:, 0].double()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"diversity": AnotherGraph()}, r"Pair_graph alone, not \['another'\]"),
        ({"diversity": "Pair_simi"}, r"Pair_graph alone, not \['Pair_simi'\]"),
        ({"diversity": "Pair_graph", "num_tokens": 90, "token_counts": [9] * 30}, "counts documents"),
    ],
)
def test_what_it_cannot_do_is_refused(settings: dict, said: str) -> None:
    rows, quality = block(30, 6, 1)
    with pytest.raises(ConfigurationError, match=said):
        select_documents(rows, quality, policy="partitioned_greedy", **settings)
