"""The probe's fit against scikit-learn, and its held-out figures against scipy."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score

from datamask_pipeline.errors import InputError
from datamask_pipeline.quality.linear import evaluate, fit, held_out_rows


def planted(number: int = 300, width: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((number, width))
    return vectors, vectors[:, 0] - 0.5 * vectors[:, 1] + 0.5 * generator.standard_normal(number)


def test_classification_is_penalised_logistic_regression() -> None:
    vectors, signal = planted()
    labels = (signal > 0.3).astype(float)
    probe = fit(vectors, labels, l2=0.01)
    oracle = LogisticRegression(C=1 / (0.01 * len(labels)), tol=1e-10, max_iter=5000).fit(vectors, labels)
    np.testing.assert_allclose(probe.coefficients_D, oracle.coef_[0], atol=1e-5)
    np.testing.assert_allclose(probe.predict(vectors), oracle.predict_proba(vectors)[:, 1], atol=1e-5)
    assert evaluate(probe, vectors, labels)["auc"] == pytest.approx(
        roc_auc_score(labels, probe.predict(vectors)), abs=1e-12
    )
    assert (probe.low, probe.high) == (0.0, 1.0)


def test_regression_is_ridge_clipped_to_the_labels() -> None:
    vectors, signal = planted()
    probe = fit(vectors, signal, l2=0.01)
    oracle = Ridge(alpha=0.01 * len(signal)).fit(vectors, signal)
    np.testing.assert_allclose(probe.coefficients_D, oracle.coef_, atol=1e-8)
    expected = np.clip(oracle.predict(vectors), signal.min(), signal.max())
    np.testing.assert_allclose(probe.predict(vectors), expected, atol=1e-8)
    figures = evaluate(probe, vectors, signal)
    assert figures["spearman"] == pytest.approx(spearmanr(probe.predict(vectors), signal).statistic)
    assert figures["pearson"] > 0.8


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
