"""Fits a linear model to vectors and labels, and says how it does on held-out ones. Knows no text, no file.

Shape suffixes: N examples, D vector width.
"""

import dataclasses
import hashlib
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.errors import InputError
from datamask_pipeline.quality.combine import mean_ranks

#: Newton's method converges quadratically; more steps than this means it does not converge.
MAX_NEWTON_STEPS = 100
NEWTON_TOLERANCE = 1e-9


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
        raw_N = vectors_ND.astype(np.float64) @ self.coefficients_D + self.intercept
        if self.task == "classification":
            return _sigmoid(raw_N)
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
    if len(distinct) < 2:
        raise InputError(
            "all labelled examples have the same label",
            value=float(distinct[0]) if len(distinct) else None,
            remedy="give examples of at least two labels",
        )
    ones = np.ones((len(labels_N), 1))
    design = np.concatenate([vectors_ND.astype(np.float64), ones], axis=1)
    penalty = np.full(design.shape[1], l2)
    penalty[-1] = 0.0
    if len(distinct) == 2:
        weights = _logistic(design, (labels_N == distinct[1]).astype(np.float64), penalty)
        return LinearProbe("classification", weights[:-1], float(weights[-1]), 0.0, 1.0)
    gram = design.T @ design / len(labels_N) + np.diag(penalty)
    weights = np.linalg.solve(gram, design.T @ labels_N / len(labels_N))
    return LinearProbe(
        "regression", weights[:-1], float(weights[-1]), float(distinct[0]), float(distinct[-1])
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
    if len(np.unique(labels_N)) < 2:
        raise InputError(
            f"the {len(labels_N)} held-out examples have only one label", remedy="give more labelled examples"
        )
    scores_N = probe.predict(vectors_ND)
    if probe.task == "classification":
        ranks_N = mean_ranks(scores_N) * (len(scores_N) - 1) + 1
        positive = labels_N == labels_N.max()
        num_positive, num_negative = int(positive.sum()), int((~positive).sum())
        wins = ranks_N[positive].sum() - num_positive * (num_positive + 1) / 2
        return {"auc": float(wins / (num_positive * num_negative))}
    return {
        "pearson": float(np.corrcoef(scores_N, labels_N)[0, 1]),
        "spearman": float(np.corrcoef(mean_ranks(scores_N), mean_ranks(labels_N))[0, 1]),
    }


def _logistic(
    design: NDArray[np.float64], targets: NDArray[np.float64], penalty: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Newton's method on the penalised mean log loss."""
    weights = np.zeros(design.shape[1])
    for _ in range(MAX_NEWTON_STEPS):
        probability = _sigmoid(design @ weights)
        gradient = design.T @ (probability - targets) / len(targets) + penalty * weights
        spread = probability * (1 - probability) / len(targets)
        # The intercept's row is not penalised; the tiny ridge keeps its curvature positive.
        hessian = (design * spread[:, None]).T @ design + np.diag(penalty + 1e-12)
        step = np.linalg.solve(hessian, gradient)
        weights = weights - step
        if np.abs(step).max() < NEWTON_TOLERANCE:
            return weights
    raise InputError(
        f"the probe did not converge in {MAX_NEWTON_STEPS} steps", remedy="raise `l2` or give more examples"
    )


def _sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    result: NDArray[np.float64] = 0.5 * (1.0 + np.tanh(0.5 * values))
    return result
