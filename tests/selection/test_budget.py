"""What a budget allows: masks by enumeration, projections by an independent solver, shares of parts."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from datamask_pipeline import select_documents
from datamask_pipeline.selection.budget import Budget, highest, lots, shared_out


def documents(limits: list[int], groups: list[int]) -> Budget:
    return Budget(
        costs_N=torch.ones(len(groups), dtype=torch.float64),
        groups_N=torch.tensor(groups),
        limits=tuple(float(limit) for limit in limits),
        tokens=False,
        seed=3,
    )


def tokens(limit: float, costs: list[float]) -> Budget:
    return Budget(
        costs_N=torch.tensor(costs, dtype=torch.float64),
        groups_N=torch.zeros(len(costs), dtype=torch.int64),
        limits=(limit,),
        tokens=True,
        seed=3,
    )


def test_a_breach_is_told_and_nothing_else() -> None:
    """Every mask of six documents in two groups, and of five documents with tokens."""
    budget = documents([2, 1], [0, 0, 0, 1, 1, 1])
    for bits in product([False, True], repeat=6):
        kept = sum(bits[:3]) == 2 and sum(bits[3:]) == 1
        assert (budget.breach(torch.tensor(bits)) is None) == kept
    costs = [5.0, 3.0, 2.0, 7.0, 1.0]
    budget = tokens(9.0, costs)
    for bits in product([False, True], repeat=5):
        kept = sum(cost for cost, chosen in zip(costs, bits, strict=True) if chosen) <= 9
        assert (budget.breach(torch.tensor(bits)) is None) == kept
    assert (
        documents([2], [0] * 4).breach(torch.tensor([True] * 3 + [False]))
        == "3 documents where the budget is 2"
    )
    assert tokens(9.0, costs).breach(torch.ones(5, dtype=torch.bool)) == "18 tokens where the budget is 9"


@given(seed=st.integers(0, 10_000), counted=st.booleans())
@settings(max_examples=60, deadline=None)
def test_best_is_the_best_and_random_and_filled_masks_keep_the_budget(seed: int, counted: bool) -> None:
    draws = np.random.default_rng(seed)
    size = int(draws.integers(6, 30))
    groups = draws.integers(0, 3, size).tolist()
    limits = [int(draws.integers(0, groups.count(group) + 1)) for group in range(3)]
    costs = draws.integers(1, 9, size).astype(float).tolist()
    budget = tokens(18.0, costs) if counted else documents(limits, groups)
    scores_N = torch.from_numpy(draws.normal(size=size))
    for mask_N in (budget.best(scores_N), budget.best(scores_N, exact=True), budget.random("x", seed)):
        assert budget.breach(mask_N) is None
    best_N = budget.best(scores_N, exact=True)
    if counted:
        left = 18 - float(budget.costs_N[best_N].sum())
        assert not (budget.costs_N[~best_N] <= left).any()
    else:
        for group, limit in enumerate(limits):
            members = [float(score) for score, own in zip(scores_N, groups, strict=True) if own == group]
            chosen = scores_N[best_N & (budget.groups_N == group)].tolist()
            assert sorted(chosen) == sorted(members)[len(members) - limit :]
        assert budget.most(scores_N) == pytest.approx(float(scores_N[best_N].sum()))


@pytest.mark.parametrize("budget", [documents([3], [0] * 8), documents([2, 1], [0] * 5 + [1] * 3),
                                    tokens(9.0, [5.0, 3.0, 2.0, 7.0, 1.0, 2.0, 2.0, 4.0])])  # fmt: skip
def test_the_projection_is_the_nearest_relaxed_mask(budget: Budget) -> None:
    for seed in range(5):
        point = np.random.default_rng(seed).normal(size=8)
        found_N = budget.project(torch.from_numpy(point))
        constraints = [
            {"type": "eq", "fun": lambda w, own=(budget.groups_N == group).numpy(), limit=limit:
                float((w * budget.costs_N.numpy())[own].sum() - limit)}
            for group, limit in enumerate(budget.limits)
        ]  # fmt: skip
        nearest = minimize(
            lambda w, point=point: float(np.square(w - point).sum()),
            np.full(8, 0.3),
            method="SLSQP",
            bounds=[(0, 1)] * 8,
            constraints=constraints,
            options={"ftol": 1e-14, "maxiter": 500},
        )
        np.testing.assert_allclose(found_N.numpy(), nearest.x, atol=1e-5)


def test_the_mean_is_that_of_random_masks() -> None:
    budget = documents([2, 3], [0] * 6 + [1] * 9)
    values_N = torch.rand(15, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    means = [float(values_N[budget.random("mean", draw)].mean()) for draw in range(2000)]
    assert abs(np.mean(means) - budget.mean(values_N)) < 4 * np.std(means) / np.sqrt(2000)


def test_ties_are_broken_uniformly_and_by_the_seed_alone() -> None:
    scores_N = torch.tensor([2.0] + [1.0] * 9, dtype=torch.float64)
    counts_N = torch.zeros(10)
    for seed in range(300):
        budget = Budget(
            costs_N=torch.ones(10, dtype=torch.float64),
            groups_N=torch.zeros(10, dtype=torch.int64),
            limits=(4.0,),
            tokens=False,
            seed=seed,
        )
        assert torch.equal(budget.best(scores_N), budget.best(scores_N))
        counts_N += budget.best(scores_N, exact=True)
    assert counts_N[0] == 300
    assert (counts_N[1:] - 100).abs().max() < 4 * np.sqrt(300 * 2 / 9)


@pytest.mark.parametrize("counted", [False, True])
def test_computed_scores_that_rounding_tells_apart_are_ties_and_given_ones_are_not(counted: bool) -> None:
    scores_N = 1 + torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64) * 1e-9
    budget = tokens(2.0, [1.0] * 4) if counted else documents([2], [0] * 4)
    masks = [replace(budget, seed=seed).best(scores_N) for seed in range(60)]
    assert len({tuple(mask_N.tolist()) for mask_N in masks}) == 6
    exact = [replace(budget, seed=seed).best(scores_N, exact=True) for seed in range(60)]
    assert {tuple(mask_N.tolist()) for mask_N in exact} == {(False, False, True, True)}
    apart = [replace(budget, seed=seed).best(1 + (scores_N - 1) * 1e5) for seed in range(60)]
    assert {tuple(mask_N.tolist()) for mask_N in apart} == {(False, False, True, True)}


@given(scores=st.lists(st.integers(-2, 3), min_size=1, max_size=14), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_of_equal_scores_the_higher_draws_or_the_earlier(scores: list[int], seed: int) -> None:
    """Against sorting, for every count."""
    scores_N, draws_N = torch.tensor(scores, dtype=torch.float64), lots(seed, len(scores))
    for count in range(len(scores) + 1):
        for ties, mask_N in (
            (-draws_N, highest(scores_N, count, draws_N)),
            (range(99), highest(scores_N, count)),
        ):
            order = sorted(range(len(scores)), key=lambda row: (-scores[row], float(ties[row])))
            assert torch.nonzero(mask_N).flatten().tolist() == sorted(order[:count])


def test_a_part_has_its_share_of_every_group() -> None:
    whole = documents([20, 10], [0] * 60 + [1] * 40)
    part = whole.part(torch.cat([torch.arange(30), torch.arange(60, 80)]))
    assert part.limits == (10.0, 5.0)
    assert documents([30], [0] * 100).part(torch.arange(50)).limits == (15.0,)
    assert documents([30], [0] * 1000).part(torch.arange(10)).limits == (2.0,)
    costs = [float(cost) for cost in range(1, 101)]
    in_tokens = tokens(500.0, costs).part(torch.arange(0, 100, 4))
    assert in_tokens.limits == (125.0,)
    assert in_tokens.tokens
    assert in_tokens.costs_N.tolist() == costs[::4]
    assert documents([20, 10], [0] * 60 + [1] * 40).ungrouped.limits == (30.0,)
    assert tokens(505.0, costs).ungrouped.limits == (10.0,)


@given(st.lists(st.floats(0, 50), min_size=1, max_size=12))
def test_whole_numbers_of_the_total_next_to_their_shares(shares: list[float]) -> None:
    total = round(sum(shares))
    if total > sum(shares):
        shares[0] += total - sum(shares)
    whole = shared_out(shares, total)
    assert sum(whole) == total
    assert all(abs(number - share) <= 1 + 1e-6 for number, share in zip(whole, shares, strict=True))


def test_shares_that_sum_to_more_by_their_last_digits_are_no_document_more() -> None:
    quotas = (0.5000009, 0.5)
    assert shared_out([share * 2_000_000 for share in quotas], 2_000_000) == [1_000_001, 999_999]


def test_a_budget_that_takes_everything_says_so() -> None:
    assert documents([3, 2], [0, 0, 0, 1, 1]).takes_everything
    assert not documents([3, 1], [0, 0, 0, 1, 1]).takes_everything
    assert tokens(6.0, [1.0, 2.0, 3.0]).takes_everything
    assert not tokens(5.9, [1.0, 2.0, 3.0]).takes_everything


def test_in_documents_a_budget_in_tokens_is_all_but_one_at_most_unless_it_holds_all() -> None:
    costs = [1.0, 1.0, 1.0, 100.0]
    assert tokens(102.0, costs).num_documents > 3.9
    assert tokens(102.0, costs).ungrouped.limits == (3.0,)
    assert tokens(103.0, costs).ungrouped.limits == (4.0,)
    assert tokens(51.5, costs).ungrouped.limits == (2.0,)


def test_every_mask_of_a_budget_in_documents_once() -> None:
    found = documents([2, 0, 1], [0, 0, 0, 1, 2, 2]).every(6)
    assert found is not None
    held = {tuple(mask_N.nonzero().flatten().tolist()) for mask_N in found}
    assert held == {(0, 1, 4), (0, 1, 5), (0, 2, 4), (0, 2, 5), (1, 2, 4), (1, 2, 5)}
    assert documents([2, 0, 1], [0, 0, 0, 1, 2, 2]).every(5) is None
    assert tokens(3.0, [1.0, 2.0, 3.0]).every(64) is None


def test_lengths_that_are_not_whole_add_up_in_any_order() -> None:
    """Thirty tenths are three, and a sum in another order may differ in its last bits: neither breaks the budget."""
    costs_N = torch.full((40,), 0.1, dtype=torch.float64)
    for limit in (0.3, 0.7, 1.1, 2.3, 3.0):
        budget = Budget(
            costs_N=costs_N, groups_N=torch.zeros(40, dtype=torch.int64), limits=(limit,), tokens=True, seed=0
        )
        taken_N = torch.arange(40) < round(limit / 0.1)
        assert budget.breach(taken_N) is None
        assert budget.breach(torch.arange(40) <= round(limit / 0.1)) is not None


def test_selected_tokens_that_are_not_whole_are_told_as_they_are() -> None:
    draws = np.random.default_rng(0)
    tokens = draws.integers(1, 30, 30) / 2
    result = select_documents(
        draws.standard_normal((30, 4)), draws.random(30), num_tokens=75, token_counts=tokens, num_workers=1
    )
    assert result.record["selected_tokens"] == pytest.approx(tokens[result.mask].sum(), abs=1e-9)
