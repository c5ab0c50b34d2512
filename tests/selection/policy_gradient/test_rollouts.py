"""The two distributions over masks, against enumeration."""

from itertools import combinations, permutations, product

import pytest
import torch

from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.policy_gradient.rollouts import (
    IndependentInclusion,
    Rollouts,
    WithoutReplacement,
)

N, K = 6, 3
LOGITS = torch.tensor([0.3, -1.0, 0.8, 0.0, 1.5, -0.4], dtype=torch.float64)


def budget(limits: tuple[float, ...] = (3.0,), groups: list[int] | None = None) -> Budget:
    return Budget(
        costs_N=torch.ones(N, dtype=torch.float64),
        groups_N=torch.tensor(groups or [0] * N),
        limits=limits,
        tokens=False,
        seed=0,
    )


def ordered_draws() -> Rollouts:
    """Every ordered draw of K of N, as masks with keys that carry the order."""
    orders = list(permutations(range(N), K))
    masks, keys = torch.zeros(len(orders), N, dtype=torch.bool), torch.full((len(orders), N), -10.0)
    for row, order in enumerate(orders):
        for place, document in enumerate(order):
            masks[row, document], keys[row, document] = True, float(K - place)
    return Rollouts(masks_GN=masks, keys_GN=keys)


def test_plackett_luce_sums_to_one_over_all_ordered_draws() -> None:
    assert float(WithoutReplacement(LOGITS, budget()).log_prob(ordered_draws()).exp().sum()) == pytest.approx(
        1, abs=1e-12
    )


def test_log_prob_is_the_product_of_the_draws() -> None:
    draws = ordered_draws()
    found = WithoutReplacement(LOGITS, budget()).log_prob(draws)
    for row in (0, 17, 119):
        order = torch.argsort(draws.keys_GN[row], descending=True)[:K]
        left, expected = LOGITS.exp().clone(), 0.0
        for document in order:
            expected += float(torch.log(left[document] / left.sum()))
            left[document] = 0
        assert float(found[row]) == pytest.approx(expected, abs=1e-12)


def test_plackett_luce_score_is_the_derivative_of_log_prob() -> None:
    draws = ordered_draws()
    weights_G = torch.randn(
        len(draws.masks_GN), generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    logits = LOGITS.clone().requires_grad_()
    (WithoutReplacement(logits, budget()).log_prob(draws) * weights_G).sum().backward()
    found = WithoutReplacement(LOGITS, budget()).score(draws, weights_G, "plackett_luce")
    torch.testing.assert_close(found, logits.grad)


def test_product_of_softmax_score_is_its_derivative() -> None:
    draws = ordered_draws()
    weights_G = torch.randn(
        len(draws.masks_GN), generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    logits = LOGITS.clone().requires_grad_()
    ((draws.masks_GN * torch.log_softmax(logits, 0)).sum(1) * weights_G).sum().backward()
    found = WithoutReplacement(LOGITS, budget()).score(draws, weights_G, "product_of_softmax")
    torch.testing.assert_close(found, logits.grad, rtol=1e-5, atol=1e-5)


def test_samples_follow_log_prob() -> None:
    policy = WithoutReplacement(LOGITS, budget())
    drawn = policy.sample(40_000, torch.Generator().manual_seed(4)).masks_GN
    assert bool((drawn.sum(1) == K).all())
    draws = ordered_draws()
    probability = policy.log_prob(draws).exp()
    for chosen in list(combinations(range(N), K))[::4]:
        mask = torch.zeros(N, dtype=torch.bool)
        mask[list(chosen)] = True
        expected = float(probability[(draws.masks_GN == mask).all(1)].sum())
        assert float((drawn == mask).all(1).double().mean()) == pytest.approx(expected, abs=0.01)


def test_quotas_hold_in_every_sample() -> None:
    policy = WithoutReplacement(LOGITS, budget((1.0, 2.0), [0, 0, 1, 1, 1, 0]))
    drawn = policy.sample(50, torch.Generator().manual_seed(4))
    assert bool((drawn.masks_GN[:, [0, 1, 5]].sum(1) == 1).all())
    assert bool((drawn.masks_GN[:, [2, 3, 4]].sum(1) == 2).all())
    assert bool((policy.log_prob(drawn) < 0).all())


def test_independent_inclusion_meets_the_budget_and_sums_to_one() -> None:
    policy = IndependentInclusion(LOGITS, budget())
    assert float(policy.probabilities_N.sum()) == pytest.approx(K, abs=1e-9)
    masks = torch.tensor(list(product([False, True], repeat=N)))
    total = policy.log_prob(Rollouts(masks_GN=masks, keys_GN=masks.double())).exp().sum()
    assert float(total) == pytest.approx(1, abs=1e-12)
    drawn = policy.sample(40_000, torch.Generator().manual_seed(4)).masks_GN.double().mean(0)
    torch.testing.assert_close(drawn, policy.probabilities_N, rtol=0, atol=0.01)
