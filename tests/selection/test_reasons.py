"""A threshold and a reason speak only where the policy decided by it."""

import numpy as np
import pytest

from datamask_pipeline import select_documents
from datamask_pipeline.selection.reasons import BY_MARGINALS, BY_RULE, decided


@pytest.mark.parametrize("policy", ["random", "semdedup", "greedy", "gist"])
def test_a_policy_without_a_threshold_shows_none(clustered, policy: str) -> None:
    rows, quality = clustered
    result = select_documents(rows, quality, policy=policy)
    assert np.isnan(result.threshold)
    assert not any("threshold" in reason for reason in result.record["reasons"])
    assert len(result.record["reasons"]) == 2
    assert all(len(set(result.reasons[side])) == 1 for side in (result.mask, ~result.mask))


@pytest.mark.parametrize("lamb", [0.0, 0.5, 1.0])
def test_the_threshold_of_the_best_by_quality_is_their_cut(clustered, lamb: float) -> None:
    rows, quality = clustered
    result = select_documents(rows, quality, policy="quality_topk", lamb=lamb)
    zero, one = result.normalisation["quality"]
    scaled = (quality - zero) / (one - zero)
    assert result.threshold == pytest.approx(scaled[result.mask].min())
    assert result.threshold > scaled[~result.mask].max()
    assert set(result.reasons[result.mask]) == {"quality at or above threshold"}
    assert set(result.reasons[~result.mask]) == {"quality below threshold"}


def test_equals_at_the_cut_and_what_fills_a_budget_are_exceptions(clustered) -> None:
    rows, _ = clustered
    result = select_documents(rows, np.repeat([1.0, 0.0], 200), policy="quality_topk")
    assert set(result.reasons[200:]) == {"quality below threshold"}
    assert {reason.split(":")[0] for reason in result.reasons[:200][~result.mask[:200]]} == {"exception"}
    tokens = np.full(400, 10.0)
    tokens[25] = 195.0
    filled = select_documents(
        rows, np.linspace(1, 0, 400), policy="quality_topk", token_counts=tokens, num_tokens=400
    )
    assert not filled.mask[25]
    assert filled.reasons[25].startswith("exception: quality at or above threshold, out")


def test_reasons_under_quotas_compare_within_the_group(clustered) -> None:
    rows, quality = clustered
    groups = np.where(quality > np.median(quality), "good", "bad")
    result = select_documents(
        rows, quality, policy="quality_topk", groups=list(groups), quotas={"good": 0.5, "bad": 0.5}
    )
    assert set(result.record["reasons"]) == {"quality at or above threshold", "quality below threshold"}


@pytest.mark.parametrize("num_rollouts", [8, 64])
def test_policy_gradient_is_decided_by_the_cut_in_the_logits(clustered, num_rollouts: int) -> None:
    rows, quality = clustered
    result = select_documents(
        rows, quality, policy="policy_gradient", num_epochs=20, num_rollouts=num_rollouts, lamb=0.3
    )
    assert result.threshold == result.logits[result.mask].min() > result.logits[~result.mask].max()
    assert set(result.reasons[result.mask]) == {"logit at or above threshold"}
    assert set(result.reasons[~result.mask]) == {"logit below threshold"}


def test_logits_that_are_all_equal_are_decided_by_lot(clustered) -> None:
    rows, _ = clustered
    result = select_documents(
        rows, np.linspace(0, 1, 400), policy="policy_gradient", num_epochs=1, partial=0.1, init="same"
    )
    out = set(result.reasons[~result.mask])
    assert any(reason.startswith("exception: logit at or above threshold, out by lot") for reason in out)


@pytest.mark.parametrize("policy", ["random", "datamask"])
def test_the_random_value_is_zero_by_construction(clustered, policy: str) -> None:
    rows, quality = clustered
    scaled = select_documents(rows, quality, policy=policy, diversity="Pair_simi")
    assert str(scaled.objective.random) == "0.0"
    frozen = select_documents(
        rows, quality + 1, policy=policy, diversity="Pair_simi", normalisation_constants=scaled.normalisation
    )
    assert abs(frozen.objective.random) > 1e-3


def test_the_record_counts_the_reasons_of_every_document() -> None:
    draws = np.random.default_rng(0)
    result = select_documents(draws.normal(size=(70, 8)), draws.random(70), quality_pruning=0.3)
    names, counts = np.unique(result.reasons.astype(str), return_counts=True)
    assert result.record["reasons"] == dict(zip(names.tolist(), counts.tolist(), strict=True))
    assert result.record["reasons"]["pruned by quality"] == 21


def test_a_group_of_which_nothing_is_selected_has_an_infinite_threshold() -> None:
    values, mask = np.array([3.0, 1.0, 2.0, 9.0]), np.array([True, False, False, False])
    found = decided(BY_MARGINALS, values, values, values, mask, np.array([0, 0, 1, 1]))
    assert found.thresholds_G == {0: 3.0, 1: np.inf}
    assert found.threshold == 9.0
    assert found.reasons_N.tolist() == [BY_MARGINALS.into] + [BY_MARGINALS.out] * 3


def test_no_threshold_decides_by_marginals_of_which_one_is_not_known() -> None:
    values, mask, groups = np.array([3.0, np.nan, 2.0]), np.array([True, False, False]), np.zeros(3, np.int64)
    found = decided(BY_MARGINALS, values, values, values, mask, groups)
    assert np.isnan(found.threshold)
    assert found.reasons_N.tolist() == [BY_RULE.into, BY_RULE.out, BY_RULE.out]
