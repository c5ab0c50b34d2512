"""The columns of a result: the logit is the log-odds of the probability, for every policy."""

import numpy as np
import pytest
from scipy.special import expit, logit

from datamask_pipeline import select_documents
from datamask_pipeline.families import POLICIES
from datamask_pipeline.selection.result import CERTAIN, log_odds
from datamask_pipeline.selection.solution import told_bound


def test_log_odds_are_exact_between_and_ordered_by_score_at_the_ends() -> None:
    probabilities = np.array([0.0, 1.0, 0.25, 0.5, 1.0, 0.0, 1e-30, 1 - 1e-12])
    scores = np.array([3.0, -1e9, 0.0, 9.0, 7.0, 2.0, 0.0, 0.0])
    odds = log_odds(probabilities, scores)
    np.testing.assert_allclose(odds[[2, 3, 7]], logit(probabilities[[2, 3, 7]]), rtol=1e-9)
    np.testing.assert_allclose(expit(odds), probabilities, atol=1e-17)
    order = np.argsort(odds, kind="stable")
    assert order.tolist() == [5, 0, 6, 2, 3, 7, 1, 4]
    assert np.abs(odds).max() <= CERTAIN + 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("policy", POLICIES.names())
def test_the_logit_is_that_of_the_probability(policy, clustered) -> None:
    few = {
        "policy_gradient": {"num_epochs": 20, "num_rollouts": 8, "partial": 0.5},
        "partitioned_greedy": {"diversity": "Pair_graph"},
    }.get(policy, {})
    result = select_documents(*clustered, policy=policy, quality_pruning=0.2, **few)
    np.testing.assert_allclose(expit(result.logits), result.probabilities, atol=1e-15)
    kept = result.reasons != "pruned by quality"
    assert np.isfinite(result.logits[kept]).all()
    assert (result.logits[~kept] == -np.inf).all()


def test_results_are_compared_by_identity(clustered) -> None:
    one, other = (select_documents(*clustered, policy="quality_topk") for _ in range(2))
    assert one in [other, one]
    assert one != other
    assert len({one, other}) == 2


def test_a_bound_that_the_mask_contradicts_is_none() -> None:
    assert told_bound(None, 0.5, 0.0, "no bound: none") == (None, "no bound: none")
    assert told_bound(0.6, 0.5, 0.0, "tangent") == (0.6, "tangent")
    assert told_bound(0.5 - 1e-6, 0.5, 0.0, "tangent") == (0.5, "tangent")
    bound, method = told_bound(0.49, 0.5, 0.0, "tangent")
    assert bound is None
    assert method.startswith("no bound: the mask that was found lies above")
