"""Why a document is in or out, as one short string. Knows no learner.

Shape suffixes: N documents.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

ABOVE = "above threshold"
BELOW = "below threshold"
ABOVE_BUT_OUT = "exception: above threshold, out by rounding or swap"
BELOW_BUT_IN = "exception: below threshold, in by rounding or swap"
DRAWN = "random draw"
NOT_DRAWN = "not drawn"
PRUNED = "pruned by quality"
BY_RULE = "in by the policy's rule"
NOT_BY_RULE = "out by the policy's rule"


def threshold_of(
    totals_N: NDArray[np.float64], mask_N: NDArray[np.bool_], groups_N: NDArray[np.int64]
) -> tuple[float, NDArray[np.float64]]:
    """The total marginal that cuts as many documents as the mask holds: over the block, and of each document's group.

    NaN where marginals are unknown.
    """
    cuts_N = np.empty(len(totals_N))
    for group in np.unique(groups_N):
        members = groups_N == group
        cuts_N[members] = _cut(totals_N[members], int(mask_N[members].sum()))
    return _cut(totals_N, int(mask_N.sum())), cuts_N


def _cut(totals_N: NDArray[np.float64], count: int) -> float:
    if count == 0:
        return float("inf")
    return float(-np.partition(-totals_N, count - 1)[count - 1])


def reasons(
    out_and_in: tuple[str, str] | None,
    totals_N: NDArray[np.float64],
    mask_N: NDArray[np.bool_],
    cuts_N: NDArray[np.float64],
) -> NDArray[np.object_]:
    """One reason for each document: an array of references to the strings above.

    Args:
        out_and_in: The policy's own two reasons; none where documents are in for their marginals.
        totals_N: Their marginals; a metric without them has no threshold that a document could stand above.
        mask_N: Who is in.
        cuts_N: Each document's threshold.
    """
    if out_and_in is not None or np.isnan(totals_N).any():
        return _one_of(list(out_and_in or (NOT_BY_RULE, BY_RULE)), mask_N)
    return _one_of([BELOW, BELOW_BUT_IN, ABOVE_BUT_OUT, ABOVE], mask_N + 2 * (totals_N >= cuts_N))


def _one_of(names: list[str], codes_N: NDArray[Any]) -> NDArray[np.object_]:
    return np.array(names, dtype=object)[codes_N.astype(np.intp)]
