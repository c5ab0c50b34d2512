"""Every estimator against the exact gradient of its own policy's expectation, for every metric."""

from dataclasses import replace
from itertools import permutations, product

import pytest
import torch

from datamask_pipeline.diversity.moments import MomentMetric, moments_of
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.families import ESTIMATORS, METRICS
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.objective import ObjectiveFunction, Term
from datamask_pipeline.selection.policy_gradient.estimators.base import Batch
from datamask_pipeline.selection.policy_gradient.rollouts import (
    IndependentInclusion,
    Rollouts,
    WithoutReplacement,
    inclusion_probabilities,
)
from datamask_pipeline.selection.rewards import advantages, marginals, rewards

N, D, K = 6, 4, 3
NAMES = sorted(METRICS.classes())
EXACT = [
    name
    for name, member in METRICS.classes().items()
    if member.exact_marginals
    and name != "Pair_graph"  # at the number of each mask, which independent draws let vary
]


def make_batch(name: str) -> Batch:
    draws = torch.Generator().manual_seed(8)
    rows = torch.randn(N, D, generator=draws, dtype=torch.float64) + 0.3
    term = Term(name=name, metric=METRICS.make(name), weight=1.0, zero=-0.3, one=0.9)
    return Batch(
        embeddings_ND=rows / rows.norm(dim=1, keepdim=True),
        logits_N=torch.tensor([0.3, -1.0, 0.8, 0.0, 1.5, -0.4], dtype=torch.float64),
        objective=ObjectiveFunction(
            lamb=0.4, quality_N=torch.rand(N, generator=draws, dtype=torch.float64), terms=(term,)
        ),
        budget=Budget(
            costs_N=torch.ones(N, dtype=torch.float64),
            groups_N=torch.zeros(N, dtype=torch.int64),
            limits=(float(K),),
            tokens=False,
            seed=0,
        ),
    )


def ordered_draws() -> Rollouts:
    orders = list(permutations(range(N), K))
    masks, keys = torch.zeros(len(orders), N, dtype=torch.bool), torch.full((len(orders), N), -10.0)
    for row, order in enumerate(orders):
        for place, document in enumerate(order):
            masks[row, document], keys[row, document] = True, float(K - place)
    return Rollouts(masks_GN=masks, keys_GN=keys)


def exact_gradient_without_replacement(batch: Batch) -> torch.Tensor:
    draws = ordered_draws()
    values = rewards(batch, draws.masks_GN)
    logits = batch.logits_N.clone().requires_grad_()
    (WithoutReplacement(logits, batch.budget).log_prob(draws).exp() * values).sum().backward()
    assert logits.grad is not None
    return logits.grad


@pytest.mark.parametrize("name", NAMES)
def test_score_function_identity_for_plackett_luce(name: str) -> None:
    batch, draws = make_batch(name), ordered_draws()
    policy = WithoutReplacement(batch.logits_N, batch.budget)
    weights_G = policy.log_prob(draws).exp() * rewards(batch, draws.masks_GN)
    found = policy.score(draws, weights_G, "plackett_luce")
    torch.testing.assert_close(found, exact_gradient_without_replacement(batch), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("baseline", "shrink"), [("leave_one_out", 1.0), ("group_mean", 3 / 4)])
def test_group_relative_has_the_exact_expectation(baseline: str, shrink: float) -> None:
    batch = make_batch("Pair_simi")
    options = {"num_rollouts": 4, "baseline": baseline, "log_prob": "plackett_luce"}
    estimator = ESTIMATORS.make("group_relative", options)
    draws = torch.Generator().manual_seed(1)
    repeats = 6000
    samples = torch.stack([estimator.estimate(batch, draws).gradient_N for _ in range(repeats)])
    expected = shrink * exact_gradient_without_replacement(batch)
    errors = (samples.mean(0) - expected).abs() / (samples.std(0) / repeats**0.5)
    assert float(errors.max()) < 4
    # The test can tell one baseline from the other.
    assert float((expected * (1 / 3)).abs().max()) > 4 * float(samples.std(0).max()) / repeats**0.5


def test_the_simple_form_points_the_same_way() -> None:
    batch = make_batch("DiSF_uncentred")
    estimator = ESTIMATORS.make("group_relative", {"num_rollouts": 4096})
    found = estimator.estimate(batch, torch.Generator().manual_seed(2)).gradient_N
    exact = exact_gradient_without_replacement(batch)
    assert float(torch.cosine_similarity(found, exact, dim=0)) > 0.95


def expectation(batch: Batch, logits: torch.Tensor) -> float:
    """The expected objective under independent inclusion, by enumeration; counts held at the budget."""
    masks = torch.tensor(list(product([False, True], repeat=N)))
    p = inclusion_probabilities(logits, batch.budget)
    probability = torch.where(masks, p, 1 - p).prod(1)
    return float(probability @ fixed_count_values(batch, masks))


def fixed_count_values(batch: Batch, masks: torch.Tensor) -> torch.Tensor:
    function, (term,) = batch.objective, batch.objective.terms
    total = function.lamb * (masks.double() @ function.quality_N) / K
    for row, mask in enumerate(masks):
        if isinstance(term.metric, MomentMetric):
            found = moments_of(batch.embeddings_ND, mask, True)
            value = term.metric.value(found if term.metric.moving_count else replace(found, count=K))
        else:
            value = float(term.metric.values(batch.embeddings_ND, mask[None])[0]) if mask.any() else 0.0
        total[row] += (1 - function.lamb) * (term.scale * value + term.offset)
    return total


def exact_gradient_independent(batch: Batch) -> torch.Tensor:
    gradient = torch.zeros(N, dtype=torch.float64)
    for row in range(N):
        step = torch.zeros(N, dtype=torch.float64)
        step[row] = 1e-5
        difference = expectation(batch, batch.logits_N + step) - expectation(batch, batch.logits_N - step)
        gradient[row] = difference / 2e-5
    return gradient


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", EXACT)
def test_counterfactual_expectation_is_the_gradient(name: str) -> None:
    batch = make_batch(name)
    policy = IndependentInclusion(batch.logits_N, batch.budget)
    masks = torch.tensor(list(product([False, True], repeat=N)))
    probability = policy.log_prob(Rollouts(masks_GN=masks, keys_GN=masks.double())).exp()
    mean_N = torch.zeros(N, dtype=torch.float64)
    for mask, share in zip(masks, probability, strict=True):
        if name == "Facility" and not mask.any():
            mean_N += share * empty_gains(batch)
        else:
            mean_N += share * marginals(batch, mask)
    torch.testing.assert_close(
        policy.logit_gradient(mean_N), exact_gradient_independent(batch), rtol=1e-5, atol=1e-8
    )


def empty_gains(batch: Batch) -> torch.Tensor:
    """Facility's marginals at the empty mask, which no learner meets."""
    function, (term,) = batch.objective, batch.objective.terms
    alone = term.metric.values(batch.embeddings_ND, torch.eye(N, dtype=torch.bool))
    return function.lamb * function.quality_N / K + (1 - function.lamb) * term.scale * alone


@pytest.mark.slow
def test_counterfactual_samples_its_own_policy() -> None:
    batch = make_batch("Facility")
    estimator = ESTIMATORS.make("counterfactual", {"num_rollouts": 3000})
    found = estimator.estimate(batch, torch.Generator().manual_seed(0)).gradient_N
    torch.testing.assert_close(found, exact_gradient_independent(batch), rtol=0.2, atol=0.004)


@pytest.mark.parametrize("name", ["Pair_simi", "DiSF_uncentred"])
def test_expected_is_exact(name: str) -> None:
    batch = make_batch(name)
    found = ESTIMATORS.make("expected").estimate(batch, torch.Generator())
    torch.testing.assert_close(found.gradient_N, exact_gradient_independent(batch), rtol=1e-6, atol=1e-9)
    assert float(found.rewards_G[0]) == pytest.approx(expectation(batch, batch.logits_N), abs=1e-9)


def test_expected_refuses_what_has_no_closed_form() -> None:
    with pytest.raises(ConfigurationError, match="counterfactual"):
        ESTIMATORS.make("expected").estimate(make_batch("LogDet"), torch.Generator())


def test_advantages_sum_to_zero_and_leave_one_out_is_the_mean_of_the_others() -> None:
    rewards_G = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)
    assert float(advantages(rewards_G, "group_mean").sum()) == pytest.approx(0)
    torch.testing.assert_close(
        advantages(rewards_G, "leave_one_out"), torch.tensor([-3.0, -1.5, 4.5], dtype=torch.float64)
    )
