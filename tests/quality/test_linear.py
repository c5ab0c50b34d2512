"""The probe minimises the loss it states, finds what is planted, and is the same whatever the number of threads."""

import os
import subprocess
import sys

import numpy as np
import pytest

from datamask_pipeline.errors import InputError
from datamask_pipeline.quality.linear import evaluate, fit, held_out_rows


def planted(number: int = 300, width: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((number, width))
    return vectors, vectors[:, 0] - 0.5 * vectors[:, 1] + 0.5 * generator.standard_normal(number)


def loss(weights: np.ndarray, intercept: float, vectors: np.ndarray, labels: np.ndarray, l2: float) -> float:
    """Mean log loss of two labels, plus the penalty, as the formula says."""
    margins = np.where(labels > 0, 1, -1) * (vectors @ weights + intercept)
    return float(np.logaddexp(0, -margins).mean() + l2 / 2 * weights @ weights)


def test_classification_minimises_the_stated_loss() -> None:
    vectors, signal = planted()
    labels = (signal > 0.3).astype(float)
    probe = fit(vectors, labels, l2=0.01)
    best = loss(probe.coefficients_D, probe.intercept, vectors, labels, 0.01)
    for index in range(9):
        for step in (-1e-3, 1e-3):
            moved = np.append(probe.coefficients_D, probe.intercept)
            moved[index] += step
            assert loss(moved[:-1], moved[-1], vectors, labels, 0.01) > best
    expected = 1 / (1 + np.exp(-(vectors @ probe.coefficients_D + probe.intercept)))
    np.testing.assert_allclose(probe.predict(vectors), expected, atol=1e-12)
    assert (probe.low, probe.high) == (0.0, 1.0)


def test_the_area_under_the_curve_counts_pairs_and_half_of_ties() -> None:
    vectors, signal = planted(80)
    probe = fit(vectors, (signal > 0).astype(float), l2=0.01)
    vectors = np.round(vectors)  # so that scores tie
    labels = (signal > 0.5).astype(float)
    scores = probe.predict(vectors)
    pairs = np.sign(scores[labels == 1][:, None] - scores[labels == 0])
    assert evaluate(probe, vectors, labels)["auc"] == pytest.approx((pairs.mean() + 1) / 2, abs=1e-12)


def test_regression_is_ridge_clipped_to_the_labels() -> None:
    vectors, signal = planted()
    probe = fit(vectors, signal, l2=0.01)
    centred = vectors - vectors.mean(0)
    normal = centred.T @ centred / len(signal) + 0.01 * np.eye(8)
    expected = np.linalg.solve(normal, centred.T @ signal / len(signal))
    np.testing.assert_allclose(probe.coefficients_D, expected, atol=1e-10)
    raw = vectors @ expected + signal.mean() - vectors.mean(0) @ expected
    np.testing.assert_allclose(probe.predict(vectors), np.clip(raw, signal.min(), signal.max()), atol=1e-10)
    figures = evaluate(probe, vectors, signal)
    scores = probe.predict(vectors)
    assert figures["pearson"] == pytest.approx(np.corrcoef(scores, signal)[0, 1])
    ranks = [np.argsort(np.argsort(values)) for values in (scores, signal)]
    assert figures["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1], abs=1e-3)


SCRIPT = """
import hashlib
import numpy as np
from datamask_pipeline.quality.linear import fit
draws = np.random.default_rng(0)
vectors = draws.standard_normal((1500, 768)).astype(np.float16)
signal = vectors[:, 0] + draws.standard_normal(1500)
for labels in (signal, (signal > 0).astype(float)):
    probe = fit(vectors, labels.astype(float), l2=1e-3)
    weights = np.append(probe.coefficients_D, probe.intercept)
    print(hashlib.sha256(weights).hexdigest(), hashlib.sha256(probe.predict(vectors)).hexdigest())
"""


@pytest.mark.slow
def test_threads_do_not_change_a_bit() -> None:
    def outcome(threads: int) -> list[str]:
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        env = os.environ | dict.fromkeys(names, str(threads))
        command = [sys.executable, "-c", SCRIPT]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout.split()

    assert len(outcome(1)) == 4
    assert outcome(2) == outcome(1)


def test_a_prediction_does_not_depend_on_the_rows_beside_it() -> None:
    vectors = np.random.default_rng(0).standard_normal((203, 768)).astype(np.float32)
    probe = fit(vectors, vectors[:, 0].astype(float), l2=1e-3)
    alone = [probe.predict(vectors[row : row + 1])[0] for row in range(len(vectors))]
    assert probe.predict(vectors).tolist() == alone


def test_the_penalty_shrinks() -> None:
    vectors, signal = planted()
    weak, strong = (np.abs(fit(vectors, signal, l2=l2).coefficients_D).sum() for l2 in (1e-4, 10.0))
    assert strong < 0.2 * weak


def test_noise_gives_no_signal_on_held_out_examples() -> None:
    generator = np.random.default_rng(1)
    vectors, labels = generator.standard_normal((2000, 8)), generator.integers(0, 2, 2000).astype(float)
    probe = fit(vectors[:1000], labels[:1000], l2=0.01)
    assert abs(evaluate(probe, vectors[1000:], labels[1000:])["auc"] - 0.5) < 0.06


def test_one_label_is_no_lesson() -> None:
    vectors, signal = planted(50)
    with pytest.raises(InputError, match="same label"):
        fit(vectors, np.ones(50), l2=0.01)
    with pytest.raises(InputError, match="only one label"):
        evaluate(fit(vectors, signal, l2=0.01), vectors[:3], np.ones(3))


def test_holding_out_depends_on_the_example_not_its_place() -> None:
    keys = [f"text {number}" for number in range(2000)]
    marks = dict(zip(keys, held_out_rows(keys, 0.2), strict=True))
    assert dict(zip(keys[::-1], held_out_rows(keys[::-1], 0.2), strict=True)) == marks
    assert 0.17 < np.mean(list(marks.values())) < 0.23
