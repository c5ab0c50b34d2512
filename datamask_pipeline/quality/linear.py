"""Fits a linear model to vectors and labels, and says how it does on held-out ones. Knows no text, no file.

scikit-learn fits under one thread, and a prediction adds up each row by itself: neither the number of threads nor
the other rows show in a single bit.

Shape suffixes: N examples, D vector width.
"""

import dataclasses
import hashlib
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.errors import InputError

#: Newton's method converges quadratically; more steps than this means it does not converge.
MAX_NEWTON_STEPS = 100
#: Largest entry of the gradient at which it ends.
GRADIENT_TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class LinearProbe:
    """A fitted linear model.

    Attributes:
        task: ``classification`` of two labels, or ``regression`` on a number.
        coefficients_D: Weights.
        intercept: Constant.
        low: Lowest score: 0, or the lowest label.
        high: Highest score: 1, or the highest label.
    """

    task: Literal["classification", "regression"]
    coefficients_D: NDArray[np.float64]
    intercept: float
    low: float
    high: float

    def predict(self, vectors_ND: NDArray[np.floating]) -> NDArray[np.float64]:
        """Probability of the higher label, or the predicted number clipped to the labels' range."""
        # Not a product of matrices: that rounds by the number of threads and of rows.
        raw_N = (vectors_ND.astype(np.float64) * self.coefficients_D).sum(axis=1) + self.intercept
        if self.task == "classification":
            from scipy.special import expit

            raw_N = expit(raw_N)
        clipped_N: NDArray[np.float64] = np.clip(raw_N, self.low, self.high)
        return clipped_N


def fit(vectors_ND: NDArray[np.floating], labels_N: NDArray[np.float64], *, l2: float) -> LinearProbe:
    """Fit logistic regression for two distinct labels, ridge regression for more.

    Formula: mean loss over the examples plus ``l2 / 2 |w|^2``; the intercept is not penalised.

    Args:
        vectors_ND: Unit vectors.
        labels_N: Finite labels; higher is better.
        l2: Strength of the penalty, > 0.

    Raises:
        InputError: there is only one label.
    """
    distinct = np.unique(labels_N)
    check_labels(labels_N)
    from sklearn.linear_model import LogisticRegression, Ridge
    from threadpoolctl import threadpool_limits

    penalty = l2 * len(labels_N)
    vectors_ND = vectors_ND.astype(np.float64)
    with threadpool_limits(1):
        if len(distinct) > 2:
            ridge = Ridge(alpha=penalty, solver="cholesky").fit(vectors_ND, labels_N)
            low, high = float(distinct[0]), float(distinct[-1])
            return LinearProbe("regression", ridge.coef_, float(ridge.intercept_), low, high)
        logistic = LogisticRegression(
            C=1 / penalty, solver="newton-cholesky", tol=GRADIENT_TOLERANCE, max_iter=MAX_NEWTON_STEPS
        ).fit(vectors_ND, labels_N)
    if logistic.n_iter_[0] >= MAX_NEWTON_STEPS:
        raise InputError(
            f"the probe did not converge in {MAX_NEWTON_STEPS} steps",
            remedy="raise `l2` or give more examples",
        )
    return LinearProbe("classification", logistic.coef_[0], float(logistic.intercept_[0]), 0.0, 1.0)


def check_labels(labels_N: NDArray[np.float64]) -> None:
    """Refuse labels that nothing can be learnt from.

    Raises:
        InputError: there is only one label.
    """
    distinct = np.unique(labels_N)
    if len(distinct) < 2:
        raise InputError(
            "all labelled examples have the same label",
            value=float(distinct[0]) if len(distinct) else None,
            remedy="give examples of at least two labels",
        )


def check_held_out(labels_N: NDArray[np.float64]) -> None:
    """Refuse held-out labels that nothing can be measured by.

    Raises:
        InputError: there is only one label.
    """
    if len(np.unique(labels_N)) < 2:
        raise InputError(
            f"the {len(labels_N)} held-out examples have only one label", remedy="give more labelled examples"
        )


def held_out_rows(keys: list[str], share: float) -> NDArray[np.bool_]:
    """Which examples are held out: decided by a hash of each example's key, not by its position."""
    marks = [
        int.from_bytes(hashlib.sha256(f"held out: {key}".encode()).digest()[:8], "big") / 2**64
        for key in keys
    ]
    return np.array(marks) < share


def evaluate(
    probe: LinearProbe, vectors_ND: NDArray[np.floating], labels_N: NDArray[np.float64]
) -> dict[str, float]:
    """Area under the ROC curve for two labels; Pearson and Spearman correlation for more.

    Raises:
        InputError: the held-out examples have only one label, so nothing can be measured.
    """
    check_held_out(labels_N)
    scores_N = probe.predict(vectors_ND)
    if probe.task == "classification":
        from sklearn.metrics import roc_auc_score

        return {"auc": float(roc_auc_score(labels_N, scores_N))}
    from scipy.stats import pearsonr, spearmanr

    return {
        "pearson": float(pearsonr(scores_N, labels_N).statistic),
        "spearman": float(spearmanr(scores_N, labels_N).statistic),
    }
