"""Corrections for the number of tests, and Student's quantile."""

import math

import pytest

from datamask_pipeline.intervals import holm, student


def test_probabilities_are_corrected_for_their_number() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.2, 0.6]) == [1.0, pytest.approx(0.6), 1.0]
    assert holm([]) == []


def test_what_has_no_spread_is_no_test_and_corrects_nothing() -> None:
    assert holm([math.nan, 0.01, math.nan, 0.04]) == pytest.approx(
        [math.nan, 0.02, math.nan, 0.04], nan_ok=True
    )


def test_the_edge_of_an_interval_is_that_of_the_tables() -> None:
    assert student(4) == pytest.approx(2.776, abs=5e-4)
    assert student(1e6) == pytest.approx(1.960, abs=5e-4)
    assert student(7, 0.8) == pytest.approx(0.896, abs=5e-4)
