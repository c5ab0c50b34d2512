"""Greedy as a policy: an outlier hides no difference, and equal documents are chosen uniformly over seeds."""

import numpy as np
import pytest

from datamask_pipeline import select_documents

METRICS = ["Pair_simi", "DiSF_uncentred", "LogDet", "Facility"]


def picks(rows, quality, **settings) -> set[int]:
    return set(np.flatnonzero(select_documents(rows, quality, policy="greedy", **settings).mask).tolist())


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("outlier", [1e7, 1e12])
def test_beside_an_outlier_the_best_documents_are_the_best(metric: str, outlier: float) -> None:
    draws = np.random.default_rng(1)
    rows, quality = draws.normal(size=(300, 8)).astype(np.float32), draws.normal(size=300)
    quality[0] = outlier
    found = picks(rows, quality, lamb=1.0, diversity=metric)
    assert found == set(np.argsort(-quality)[:30].tolist())


@pytest.mark.parametrize("spoil", [0.0, 1e6])
def test_quality_decides_among_documents_that_are_alike(spoil: float) -> None:
    """Small differences of quality between copies stand beside an outlier's as they do without it."""
    draws = np.random.default_rng(2)
    rows = np.repeat(draws.normal(size=(20, 8)), 15, axis=0).astype(np.float32)
    quality = 1e-3 * draws.normal(size=300)
    quality[0] += spoil
    found = picks(rows, quality, num_documents=20, normalisation="none", lamb=0.1, diversity="Facility")
    best = {int(15 * group + quality[15 * group : 15 * group + 15].argmax()) for group in range(20)}
    assert found == best


@pytest.mark.sampled(1)
@pytest.mark.parametrize("metric", METRICS)
def test_identical_documents_are_chosen_uniformly(metric: str) -> None:
    draws = np.random.default_rng(3)
    rows = np.repeat(draws.normal(size=(4, 8)), 6, axis=0).astype(np.float32)
    counts = np.zeros(24)
    for seed in range(150):
        found = picks(
            rows, np.zeros(24), num_documents=4, lamb=0.0, normalisation="none", seed=seed, diversity=metric
        )
        counts[sorted(found)] += 1
    # Each direction's picks are spread over its six copies: binomial with n draws of 1/6.
    for copies in counts.reshape(4, 6):
        mean = copies.sum() / 6
        assert abs(copies - mean).max() <= 4 * np.sqrt(mean * 5 / 6)
