"""Several scores of the same documents as one quality. Knows arrays only: no scorer, no file.

Shape suffixes: N documents.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.arrays import mean_ranks
from datamask_pipeline.errors import ConfigurationError

Normalisation = Literal["none", "zscore", "rank"]


def combine_scores(
    scores: Mapping[str, NDArray[np.float64]],
    weights: Mapping[str, float],
    *,
    normalisation: Normalisation,
) -> NDArray[np.float64]:
    """The weighted mean of several scores, each made comparable first.

    Formula: ``sum_s w_s norm(q_s) / sum_s |w_s|``; ``zscore`` is ``(q - mean) / std``, ``rank`` the mean rank
    over ties, from 0 for the lowest to 1 for the highest.

    Args:
        scores: By scorer, one finite value per document, (N,) each.
        weights: By scorer; a negative weight turns a score around.
        normalisation: How scores are made comparable.

    Returns:
        quality_N.

    Raises:
        ConfigurationError: a scorer named has no scores, all weights are 0, lengths differ, a score is not
            finite, or a score to be z-scored is the same for every document.
    """
    total = sum(abs(weight) for weight in weights.values())
    if total == 0 or not np.isfinite(total):
        raise ConfigurationError(
            f"the weights of the quality scores must be finite and not all 0, not {dict(weights)}"
        )
    sizes = {name: len(values) for name, values in scores.items() if name in weights}
    if len(set(sizes.values())) > 1:
        raise ConfigurationError(f"scores of different lengths cannot be combined: {sizes}")
    combined: NDArray[np.float64] | None = None
    for name, weight in weights.items():
        if name not in scores:
            raise ConfigurationError(f"no scores of {name!r}; there are: {', '.join(sorted(scores))}")
        values_N = np.asarray(scores[name], dtype=np.float64)
        if not np.isfinite(values_N).all():
            row = int(np.flatnonzero(~np.isfinite(values_N))[0])
            raise ConfigurationError(
                f"score {name!r} of row {row} is {values_N[row]}; drop documents without a score first"
            )
        term = weight / total * _normalised(name, values_N, normalisation)
        combined = term if combined is None else combined + term
    assert combined is not None
    return combined


def _normalised(
    name: str, values_N: NDArray[np.float64], normalisation: Normalisation
) -> NDArray[np.float64]:
    if normalisation == "none":
        return values_N
    if normalisation == "rank":
        return mean_ranks(values_N)
    if normalisation != "zscore":
        raise ConfigurationError(f"unknown normalisation {normalisation!r}; choose none, zscore or rank")
    spread = float(values_N.std())
    if values_N.min() == values_N.max():
        raise ConfigurationError(
            f"score {name!r} is {values_N[0]} for every document, which has no z-score; drop the scorer"
        )
    return (values_N - values_N.mean()) / spread
