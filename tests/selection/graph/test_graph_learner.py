"""The learner along a graph: the best of all masks, exchanges that gain, greedy by itself, and a bound that holds."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from graph_blocks import block, every, posed, worth
from scipy.optimize import linprog

from datamask_pipeline import select_documents
from datamask_pipeline.diversity.pair_graph import nearest_graph
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.graph.cliques import Cliques, cliques_of
from datamask_pipeline.selection.graph.exchanges import exchanged
from datamask_pipeline.selection.graph.greedy import greedy_mask
from datamask_pipeline.selection.graph.objective import GraphObjective


@pytest.mark.parametrize("groups", [1, 2])
def test_bounds_hold_of_every_mask_whatever_the_slopes_and_steps_lower_them(groups: int) -> None:
    told: list[float] = []
    left = at_once = 0.0
    for seed in range(12):
        objective, budget, known = posed(11, seed, 4, groups=groups)
        best = max(worth(objective, known, mask) for mask in every(budget))
        cliques, draws = cliques_of(objective.graph), np.random.default_rng(seed)
        count = len(cliques.weight_C)
        for slopes in (np.zeros(count), cliques.sizes_C - 1.0, *3 * draws.random((6, count))):
            assert objective.bound(cliques, slopes, budget) >= best - 1e-12
        found = exchanged(objective, budget, greedy_mask(objective, budget))
        bound, slopes = objective.smallest_bound(
            cliques, found, budget, 400, lambda _, least: told.append(least) is not None
        )
        assert [*told, bound] == sorted([*told, bound], reverse=True)
        begun = objective.bound(cliques, objective.slopes(cliques, found, 1.0), budget)
        unmoved, _ = objective.smallest_bound(cliques, found, budget, 0, lambda *_: False)
        assert max(told[0], unmoved) <= begun
        told.clear()
        assert best - 1e-12 <= bound <= objective.bound(cliques, np.zeros(count), budget)
        assert bound == objective.bound(cliques, slopes, budget)
        left += bound - objective.value(found)
        at_once += begun - objective.value(found)
    assert left < at_once / 4


def smallest_of_all(objective: GraphObjective, cliques: Cliques, budget: Budget) -> float:
    """The smallest bound of any slopes, as a linear programme over masks and what is inside of cliques."""
    size, count = len(objective.linear_N), len(cliques.weight_C)
    rows, right = [], []
    for clique, members in enumerate(cliques.sizes_C):
        for slope in range(1, members):
            row = np.zeros(size + count)
            row[cliques.rows_M[cliques.clique_M == clique]] = slope
            row[size + clique] = -1
            rows.append(row)
            right.append(slope * (slope + 1) / 2)
    found = linprog(
        np.concatenate([-objective.linear_N, objective.weight * cliques.weight_C]),
        A_ub=np.array(rows),
        b_ub=right,
        A_eq=np.arange(size + count)[None] < size,
        b_eq=[sum(budget.limits)],
        bounds=[(0, 1)] * size + [(0, None)] * count,
    )
    return float(objective.offset - found.fun)


@pytest.mark.parametrize("lamb", [0.0, 0.4])
def test_the_bound_comes_near_to_the_smallest_of_all_slopes(lamb: float) -> None:
    for seed in range(6):
        objective, budget, _ = posed(90, seed, 30, lamb=lamb)
        cliques = cliques_of(objective.graph)
        found = exchanged(objective, budget, greedy_mask(objective, budget))
        bound, _ = objective.smallest_bound(cliques, found, budget, 2_000, lambda _, __: False)
        smallest = smallest_of_all(objective, cliques, budget)
        first = objective.bound(cliques, np.zeros(len(cliques.weight_C)), budget) - objective.value(found)
        assert -1e-9 <= bound - smallest <= 0.05 * first, (seed, bound, smallest)


def value(mask: np.ndarray, quality: np.ndarray, known: np.ndarray, scale: Any, lamb: float) -> float:
    """The objective by its formula."""
    (q0, q1), (d0, d1) = scale["quality"], scale["Pair_graph"]
    diversity = -known[np.ix_(mask, mask)].sum() / mask.sum()
    return float(lamb * (quality[mask].mean() - q0) / (q1 - q0) + (1 - lamb) * (diversity - d0) / (d1 - d0))


@pytest.mark.parametrize("quotas", [None, {"a": 0.25, "b": 0.75}])
@pytest.mark.parametrize("lamb", [0.0, 0.3, 0.8])
def test_the_best_of_all_masks_is_found(lamb: float, quotas: dict[str, float] | None) -> None:
    for seed in range(3):
        rows, quality = block(12, 6, seed)
        groups = ["a", "b"] * 6
        result = select_documents(
            rows,
            quality,
            num_documents=4,
            lamb=lamb,
            diversity="Pair_graph",
            diversity_options={"Pair_graph": {"neighbours": 4}},
            groups=groups if quotas else None,
            quotas=quotas,
            seed=seed,
        )
        graph = nearest_graph(torch.from_numpy(rows), 4)
        known = np.zeros((12, 12))
        known[graph.left_E, graph.right_E] = known[graph.right_E, graph.left_E] = graph.similarity_E
        told = {"quality": quality, "known": known, "scale": result.normalisation, "lamb": lamb}
        masks = [
            np.isin(np.arange(12), chosen)
            for chosen in itertools.combinations(range(12), 4)
            if not quotas or sum(groups[row] == "a" for row in chosen) == 1
        ]
        assert result.objective.value == pytest.approx(value(result.mask, **told), abs=1e-6)
        best = max(value(mask, **told) for mask in masks)
        assert result.objective.value >= best - 1e-6
        assert result.certificate.bound >= best - 1e-6


def test_no_exchange_of_two_documents_gains() -> None:
    objective, budget, known = posed(90, 3, 27, groups=2)
    mask = exchanged(objective, budget, greedy_mask(objective, budget))
    best, groups = worth(objective, known, mask), budget.groups_N.numpy()
    assert objective.value(mask) == pytest.approx(best)
    for out, into in itertools.product(np.flatnonzero(mask), np.flatnonzero(~mask)):
        if groups[out] == groups[into]:
            other = mask.copy()
            other[out], other[into] = False, True
            assert worth(objective, known, other) <= best + 1e-12


def test_greedy_takes_the_largest_gain_each_time() -> None:
    objective, budget, known = posed(80, 5, 24, groups=2)
    mask, groups = np.zeros(80, bool), budget.groups_N.numpy()
    while mask.sum() < 24:
        gains = objective.linear_N - objective.weight * known[:, mask].sum(1)
        full = [group for group in (0, 1) if mask[groups == group].sum() == budget.limits[group]]
        gains[mask | np.isin(groups, full)] = -np.inf
        mask[gains.argmax()] = True
    assert greedy_mask(objective, budget).tolist() == mask.tolist()


def test_annealed_masks_end_above_exchanges_and_these_above_greedy() -> None:
    rows, quality = block(400, 16, 7)
    common = {"ratio": 0.3, "lamb": 0.3, "diversity": "Pair_graph"}
    ours = select_documents(rows, quality, **common)
    scale = {"normalisation_constants": ours.normalisation}
    kicked = select_documents(rows, quality, **common, **scale, num_restarts=0)
    plain = select_documents(rows, quality, **common, **scale, num_restarts=0, num_kicks=0)
    greedy = select_documents(rows, quality, **common, **scale, policy="greedy")
    values = [result.objective.value for result in (ours, kicked, plain, greedy)]
    assert values == sorted(set(values), reverse=True)
    assert values[2] > values[3] + 0.01
    assert ours.certificate.bound >= ours.objective.value


def test_nothing_is_annealed_where_greedy_is_proven_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datamask_pipeline.selection.graph.choose.annealed", None)
    rows, quality = block(400, 16, 7)
    result = select_documents(rows, quality, num_documents=5, lamb=1.0, diversity="Pair_graph")
    assert result.certificate.gap == 0


def test_a_budget_in_tokens_is_filled_by_swaps() -> None:
    rows, quality = block(60, 8, 2)
    tokens = np.random.default_rng(2).integers(20, 200, 60)
    result = select_documents(
        rows, quality, num_tokens=900, token_counts=tokens, diversity="Pair_graph", lamb=0.4, num_restarts=0
    )
    left = 900 - tokens[result.mask].sum()
    assert 0 <= left < tokens[~result.mask].min()
    assert result.certificate.bound is None
