"""Scores are combined as stated, whatever their scales."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata, zscore

from datamask_pipeline.arrays import mean_ranks
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.quality.combine import combine_scores

A = np.array([0.1, 0.9, 0.5, 0.5])
B = np.array([300.0, -20.0, 0.0, 7.0])


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=50))
def test_ranks_share_their_mean_over_ties(values: list[int]) -> None:
    array = np.array(values, dtype=np.float64)
    np.testing.assert_allclose(mean_ranks(array), (rankdata(array) - 1) / (len(array) - 1))


def test_each_normalisation_is_what_it_says() -> None:
    scores, weights = {"a": A, "b": B}, {"a": 3.0, "b": -1.0}
    np.testing.assert_allclose(combine_scores(scores, weights, normalisation="none"), 0.75 * A - 0.25 * B)
    np.testing.assert_allclose(
        combine_scores(scores, weights, normalisation="zscore"), 0.75 * zscore(A) - 0.25 * zscore(B)
    )
    np.testing.assert_allclose(
        combine_scores(scores, weights, normalisation="rank"), 0.75 * mean_ranks(A) - 0.25 * mean_ranks(B)
    )


def test_rank_forgets_the_scale() -> None:
    weights = {"a": 1.0, "b": 1.0}
    plain = combine_scores({"a": A, "b": B}, weights, normalisation="rank")
    scaled = combine_scores({"a": A * 1e6, "b": np.exp(B / 100)}, weights, normalisation="rank")
    np.testing.assert_array_equal(plain, scaled)


def test_what_cannot_be_combined_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="all 0"):
        combine_scores({"a": A}, {"a": 0.0}, normalisation="none")
    with pytest.raises(ConfigurationError, match="all 0"):
        combine_scores({"a": A}, {}, normalisation="none")
    with pytest.raises(ConfigurationError, match="no scores of 'c'; there are: a"):
        combine_scores({"a": A}, {"c": 1.0}, normalisation="none")
    with pytest.raises(ConfigurationError, match="row 1 is nan"):
        combine_scores({"a": np.array([1.0, np.nan])}, {"a": 1.0}, normalisation="rank")
    with pytest.raises(ConfigurationError, match="no z-score"):
        combine_scores({"a": np.ones(3)}, {"a": 1.0}, normalisation="zscore")
    with pytest.raises(ConfigurationError, match="different lengths"):
        combine_scores({"a": A, "b": B[:2]}, {"a": 1.0, "b": 1.0}, normalisation="rank")
    with pytest.raises(ConfigurationError, match="choose none, zscore or rank"):
        combine_scores({"a": A}, {"a": 1.0}, normalisation="minmax")  # type: ignore[arg-type]
