"""The benchmarks' own opponents: each pick is greedy's by brute force, and they are measured by the engine's ruler."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.harness import Opponents, timed
from benchmarks.peers import (
    Task,
    correlation,
    entropy,
    facility,
    facility_exchanges,
    gist,
    moments,
    pair_graph,
    pair_search,
    volume,
)
from benchmarks.peers.facility import dense_lazy_greedy, sparse_lazy_greedy
from benchmarks.peers.moments import Products, SquaredProducts, block_lazy_greedy
from benchmarks.peers.pair_graph import GraphTask
from datamask_pipeline.diversity.base import DiversityMetric
from datamask_pipeline.diversity.disf import DiSF
from datamask_pipeline.diversity.disf_uncentred import DiSFUncentred
from datamask_pipeline.diversity.facility import FacilityLocation
from datamask_pipeline.diversity.pair_simi import PairSimilarity
from datamask_pipeline.families import METRICS

SEEDS = range(24)


def drawn(seed: int) -> Task:
    """Clusters, near-copies, exact copies, equal scores or a common direction, as the seed has it."""
    draws = np.random.default_rng(seed)
    num_documents, dimensions = int(draws.integers(30, 400)), int(draws.integers(3, 48))
    centres = draws.standard_normal((max(2, num_documents // 8), dimensions))
    rows = centres[draws.integers(len(centres), size=num_documents)]
    rows += draws.choice([0, 1e-3, 0.3, 1]) * draws.standard_normal(rows.shape) + draws.choice([0, 1.5])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    quality = draws.standard_normal(num_documents)
    budget = int(draws.integers(2, num_documents // 2))
    return Task(
        embeddings_ND=rows.astype(np.float16),
        linear_N=draws.choice([0, 1]) * (np.round(quality) if seed % 3 == 0 else quality) / budget,
        scale=float(draws.choice([0.1, 1, 10])),
        budget=budget,
    )


def shortfall_of_pairs(task: Task, picks: NDArray[np.int64], squared: bool) -> float:
    """The most by which a pick's gain, all of them scanned, was below the largest: a share of the metric's scale."""
    rows = task.embeddings_ND.astype(np.float64)
    kernel = (rows @ rows.T) ** (2 if squared else 1)
    weight = task.scale / (task.budget**2 if squared else task.budget * (task.budget - 1))
    gains, worst = task.linear_N - (weight * np.diag(kernel) if squared else 0), 0.0
    for pick in picks:
        worst = max(worst, gains.max() - gains[pick])
        gains = gains - 2 * weight * kernel[pick]
        gains[pick] = -np.inf
    return worst * task.budget / max(1, task.scale)


def shortfall_of_coverage(task: Task, picks: NDArray[np.int64]) -> float:
    rows = task.embeddings_ND.astype(np.float64)
    similar, covered, worst = rows @ rows.T, np.zeros(len(rows)), 0.0
    left = np.ones(len(rows), dtype=bool)
    for pick in picks:
        gains = task.linear_N + task.scale * np.maximum(similar - covered, 0).mean(1)
        worst = max(worst, gains[left].max() - gains[pick])
        covered, left[pick] = np.maximum(covered, similar[pick]), False
    return worst / max(1, task.scale)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("kind", [Products, SquaredProducts])
@pytest.mark.parametrize("block", [8, 64, 4096])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_pick_of_block_lazy_greedy_has_the_largest_gain(
    seed: int, block: int, kind: type[Products | SquaredProducts]
) -> None:
    task, squared = drawn(seed), kind is SquaredProducts
    weight = task.scale / (task.budget**2 if squared else task.budget * (task.budget - 1))
    picks = block_lazy_greedy(task, kind(candidates=32), weight, block=block)
    assert len(set(picks.tolist())) == task.budget
    assert shortfall_of_pairs(task, picks, squared) < 2e-6


@pytest.mark.sampled(7)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_pick_of_lazy_greedy_for_facility_has_the_largest_gain(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facility, "BLOCK", 50)
    task = drawn(seed)
    for picks in (dense_lazy_greedy(task), sparse_lazy_greedy(task, first=1 + seed % 5)):
        assert len(set(picks.tolist())) == task.budget
        assert shortfall_of_coverage(task, picks) < 1e-6


def correlation_task(seed: int, half: int, budget: int) -> Task:
    draws = np.random.default_rng(seed)
    rows = draws.standard_normal((2 * half, 12)) + 0.5
    if seed % 2:
        rows[:half] = rows[half:] + 0.01 * draws.standard_normal((half, 12))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    linear_N = draws.standard_normal(2 * half) / (2 * budget)
    return Task(embeddings_ND=rows.astype(np.float16), linear_N=linear_N, scale=0.1, budget=budget)


def correlation_value(rows: NDArray[np.float64]) -> float:
    return float(len(rows[0]) - np.square(np.corrcoef(rows.T)).sum())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(8))
def test_every_pick_of_exact_greedy_for_correlations_has_the_largest_value(seed: int) -> None:
    task = correlation_task(seed, 45, 25)
    rows, picks = task.embeddings_ND.astype(np.float64), correlation.exact_greedy(task).tolist()
    assert len(set(picks)) == task.budget
    for place in range(2, task.budget):
        values = {
            row: task.linear_N[row] + task.scale * correlation_value(rows[[*picks[:place], row]])
            for row in range(len(rows))
            if row not in picks[:place]
        }
        assert values[picks[place]] > max(values.values()) - 1e-5


@pytest.mark.parametrize("seed", range(8))
def test_block_lazy_greedy_for_correlations_ends_where_exact_greedy_does(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(correlation, "BLOCK", 100)
    task = correlation_task(seed, 150, 90)
    rows = task.embeddings_ND.astype(np.float64)

    def value(picks: NDArray[np.int64]) -> float:
        return float(task.linear_N[picks].sum()) + task.scale * correlation_value(rows[picks])

    assert value(correlation.block_lazy_greedy(task)) > value(correlation.exact_greedy(task)) - 1e-4


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("metric", [PairSimilarity, DiSFUncentred, DiSF, FacilityLocation])
def test_an_opponent_is_measured_as_the_engine_is(metric: type[DiversityMetric]) -> None:
    draws = np.random.default_rng(0)
    rows = draws.standard_normal((300, 24)) + 0.5
    embeddings = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16)
    quality = draws.standard_normal(300)
    ours = timed(embeddings, quality, diversity=metric.name)
    opponents = Opponents(
        embeddings_ND=embeddings,
        quality_N=quality,
        metric=metric(),
        constants=ours.result.normalisation,
        budget=int(ours.result.mask.sum()),
    )
    again = opponents.run(lambda task: np.flatnonzero(ours.result.mask))
    assert again.objective == pytest.approx(ours.result.objective.value, abs=1e-5)
    with pytest.raises(ValueError, match="0 documents picked, the budget is 30"):
        opponents.run(lambda task: np.empty(0, dtype=np.int64))


EXCHANGED = {
    "Pair_simi": moments.pair_simi_with_exchanges,
    "DiSF_uncentred": moments.disf_uncentred_with_exchanges,
    "LogDet": volume.greedy_with_exchanges,
    "Vendi": entropy.greedy_with_exchanges,
    "DiSF": correlation.greedy_with_exchanges,
    "Facility": facility_exchanges.greedy_with_exchanges,
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", list(EXCHANGED))
def test_no_exchange_is_left_to_an_opponent_that_gains(name: str, seed: int) -> None:
    """More and fewer documents than dimensions; all pairs tried in float64.

    Of what the metric weighs here greedy alone leaves exchanges that gain to each of them.
    """
    task = replace(correlation_task(seed, 20, [6, 18][seed // 2]), scale=10.0)
    rows_ND = torch.from_numpy(task.embeddings_ND.astype(np.float64))

    def value(picks: NDArray[np.int64]) -> float:
        mask_N = torch.zeros(len(rows_ND), dtype=torch.bool)
        mask_N[torch.from_numpy(picks)] = True
        return float(task.linear_N[picks].sum()) + task.scale * float(
            METRICS.make(name).values(rows_ND, mask_N[None])[0]
        )

    picks = EXCHANGED[name](task)
    assert len(set(picks.tolist())) == task.budget
    reached = value(picks)
    for place in range(len(picks)):
        for into in np.setdiff1d(np.arange(len(rows_ND)), picks):
            other = picks.copy()
            other[place] = into
            assert value(other) <= reached + 2e-5


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["LogDet", "Vendi", "DiSF"])
def test_the_engine_ends_above_an_opponent_with_exchanges(name: str) -> None:
    """On average, and never far below: both end where no exchange gains, and such masks are many."""
    above = []
    for seed in range(4):
        task = correlation_task(seed, 60, 10)
        quality = task.linear_N * 20
        ours = timed(task.embeddings_ND, quality, diversity=name, num_documents=10, ratio=None, seed=seed)
        opponents = Opponents(
            embeddings_ND=task.embeddings_ND,
            quality_N=quality,
            metric=METRICS.make(name),
            constants=ours.result.normalisation,
            budget=10,
        )
        above.append(ours.result.objective.value - opponents.run(EXCHANGED[name]).objective)
    assert min(above) > -0.02
    assert np.mean(above) > 0


def graph_task(seed: int, num_documents: int, budget: int) -> GraphTask:
    """Each pair of documents has an edge by chance; costs and quality weigh about as much."""
    draws = np.random.default_rng(seed)
    left, right = np.triu_indices(num_documents, 1)
    is_edge = draws.random(len(left)) < 0.3
    return GraphTask(
        left_E=left[is_edge],
        right_E=right[is_edge],
        similarity_E=draws.random(int(is_edge.sum())) + 0.01,
        linear_N=draws.random(num_documents),
        scale=float(draws.choice([0.1, 0.5, 2])),
        budget=budget,
    )


@pytest.mark.parametrize("seed", range(6))
def test_greedy_along_a_graph_picks_what_greedy_by_brute_force_does(seed: int) -> None:
    """In batches as long as more are to pick than those it picks one by one."""
    task = graph_task(seed, 120, 60)
    assert task.budget > 2 * pair_graph.FEW
    picks: list[int] = []
    while len(picks) < task.budget:
        others = np.setdiff1d(np.arange(120), picks)
        picks.append(max(others, key=lambda row: task.value_of(np.array([*picks, row]))))
    assert sorted(picks) == sorted(pair_graph.greedy(task).tolist())


@pytest.mark.parametrize("seed", range(6))
def test_no_exchange_along_a_graph_is_left_that_gains(seed: int) -> None:
    task = replace(graph_task(seed, 40, 12), scale=2.0)
    picks, greedy = pair_search.greedy_with_exchanges(task), pair_graph.greedy(task)
    assert len(set(picks.tolist())) == task.budget
    reached = task.value_of(picks)
    assert reached >= task.value_of(greedy)
    for place in range(len(picks)):
        for into in np.setdiff1d(np.arange(40), picks):
            other = picks.copy()
            other[place] = into
            assert task.value_of(other) <= reached + 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_of_few_documents_along_a_graph_annealing_finds_the_best_and_bounds_settle_none_wrongly(
    seed: int,
) -> None:
    task = graph_task(seed, 14, 5)
    masks = [np.array(mask) for mask in combinations(range(14), 5)]
    values = np.array([task.value_of(mask) for mask in masks])
    best = masks[int(values.argmax())]
    assert task.value_of(pair_search.annealing(task, seconds=0.2)) == pytest.approx(values.max(), abs=1e-9)
    settled, is_open = pair_graph._settled(task.costs(), task.linear_N, task.budget)
    assert {*np.flatnonzero(settled)} <= {*best} <= {*np.flatnonzero(settled | is_open)}
    one = pair_graph.bounding_and_partitions(task, partitions=1, rounds=1, bounding=False)
    assert sorted(one.tolist()) == sorted(pair_graph.greedy(task).tolist())


@pytest.mark.parametrize("exactly", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_gist_has_half_of_the_best_at_least_and_its_picks_are_worth_what_they_are(
    seed: int, exactly: bool
) -> None:
    """What the paper proves of at most so many picks, but for its step of the thresholds."""
    draws = np.random.default_rng(seed)
    rows = draws.standard_normal((13, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    task = Task(
        embeddings_ND=rows.astype(np.float16),
        linear_N=draws.random(13) / 4,
        scale=float(draws.choice([0.1, 1, 10])),
        budget=4,
    )
    sizes = [4] if exactly else [2, 3, 4]
    best = max(
        gist.value_of(task, np.array(mask)) for size in sizes for mask in combinations(range(13), size)
    )
    picks = gist.dense(task, exactly=exactly)
    assert len(set(picks.tolist())) in sizes
    assert gist.value_of(task, picks) >= (0.5 - 0.05) * best
