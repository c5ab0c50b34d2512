"""What a selection hands back. Knows no learner.

Shape suffixes: N documents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datamask_pipeline.arrays import mean_ranks
from datamask_pipeline.selection.given import Given


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The value of one mask, in the objective's normalised units (raw ones where normalisation is none)."""

    value: float
    quality: float
    diversity: float
    random: float
    """Mean value of uniformly random masks of the same budget."""
    raw: dict[str, float]
    """Each diversity metric before normalisation, by name."""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """An upper bound on every mask's objective beyond float32 rounding of its value, or the reason why there is none."""

    bound: float | None
    gap: float | None
    """``(bound - value) / (bound - random)``: a share of the distance from random, not of the raw value; 0 where the budget
    takes every document, whatever the bound."""
    method: str
    """The argument the bound rests on, or ``no bound: ...``."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Marginals:
    """What each document adds to the objective, in its two parts; the selection is nearly a threshold on the sum.

    ``quality_N`` is the weighted quality of the document divided by the budget; ``diversity_N`` the weighted
    change of the diversity terms when it moves. Both float64 of shape (N,); NaN for documents pruned by quality.
    """

    quality_N: NDArray[np.float64]
    diversity_N: NDArray[np.float64]

    @property
    def total_N(self) -> NDArray[np.float64]:
        """The sum of both parts."""
        return self.quality_N + self.diversity_N


@dataclass(frozen=True, kw_only=True, eq=False)
class SelectionResult:
    """One mask-learning result: what was chosen, why, how good it is, and how to compute it again.

    Results are compared by identity: compare their masks, or their objectives.
    """

    mask: NDArray[np.bool_]
    counts: NDArray[np.int64]
    """How often each document is taken: 0 or 1, or with `max_copies` up to that; the mask is where it is not 0."""
    logits: NDArray[np.float64]
    """Log-odds of `probabilities`, see `log_odds`; -inf for documents pruned by quality."""
    probabilities: NDArray[np.float64]
    """Inclusion probability under the policy: of a relaxed mask the weight, of a mask without either 0 or 1; with
    `max_copies` the share of a document's copies."""
    marginals: Marginals
    threshold: float
    """What as many documents reach as are selected: of total marginals, of quality or of `logits`, as the reasons say;
    NaN where no threshold decided."""
    reasons: NDArray[np.object_]
    """One short string per document, of the set in `selection.reasons`."""
    curve: pa.Table
    """One row per step: step, wall_seconds, objective, bound, gap and the learner's own columns."""
    objective: Objective
    certificate: Certificate
    certified_at: dict[str, NDArray[np.float64]]
    """What the bound was computed from, so that it can be computed again without learning: ``tangent``, the relaxed
    mask (with `max_copies` relaxed counts), or ``dual``, each document's dual variable as a reference; of coverage beside
    metrics of moments both. NaN for documents pruned by quality. Empty where there is no bound."""
    cliques: pa.Table | None
    """What the bound of a metric along a graph was computed from, a row a member: clique, row, weight and slope; see
    `selection/graph/cliques.py`. None where there is no such bound."""
    normalisation: dict[str, tuple[float, float]]
    """(zero, one) of each term, to be frozen with a release."""
    timings: dict[str, float]
    """Wall seconds by phase; ``total`` is the whole call."""
    held: Given | None
    """Sums over all that is held now, documents held before among them: give it to the next selection as `given`; none
    where no metric is one of moments."""
    record: dict[str, Any]
    """Settings, seed, versions, counts and constants: everything but the input needed to compute it again."""


CERTAIN = 40.0
"""Where log-odds end: float64 does not tell their probability from 1, and from 0 they differ by 4e-18."""


def log_odds(
    probabilities_N: NDArray[np.float64],
    scores_N: NDArray[np.float64],
    ranks: Callable[[NDArray[np.float64]], NDArray[np.float64]] = mean_ranks,
) -> NDArray[np.float64]:
    """``log(p / (1 - p))``, cut at plus and minus `CERTAIN`; where p is 1 or 0, up to 1 beyond that by rank of the score.

    So it is finite, its sigmoid is p within 1e-17, and it orders documents by p and then by score.

    Args:
        probabilities_N: In [0, 1].
        scores_N: What orders those that are in or out for certain.
        ranks: Makes ranks from 0 to 1 of some of the scores, in their order.
    """
    odds_N = np.empty_like(probabilities_N)
    surely_in, surely_out = probabilities_N >= 1, probabilities_N <= 0
    odds_N[surely_in] = CERTAIN + ranks(scores_N[surely_in])
    odds_N[surely_out] = ranks(scores_N[surely_out]) - CERTAIN - 1
    between = ~(surely_in | surely_out)
    exact = np.log(probabilities_N[between]) - np.log1p(-probabilities_N[between])
    odds_N[between] = np.clip(exact, -CERTAIN, CERTAIN)
    return odds_N
