"""Why a document is in or out, as one short string, and the threshold where there is one. Knows no learner.

Shape suffixes: N documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

PRUNED = "pruned by quality"
TOO_LONG = "too long: takes more than half of the token budget"
OUTLYING = "outlying: near to no other documents"
NEVER_JUDGED = (PRUNED, TOO_LONG, OUTLYING)
"""Why a document was left out before the policy saw it: it has no number but its quality."""
HELD = "held: selected in an earlier release"
PASSED_OVER = "passed over: not selected in an earlier release"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """How a policy decides, in the words of the record.

    Attributes:
        out: Why a document is out.
        into: Why one is in.
        compared: What a threshold is compared with: a document's total marginal, the policy's own score of it
            (``Solution.scores_N``), or its logit as the record has it. None where the policy decides by no threshold;
            the record then has none.
        out_all_the_same: Why one is out that reaches the threshold.
        in_all_the_same: Why one is in that does not.
    """

    out: str
    into: str
    compared: Literal["marginals", "scores", "logits"] | None = None
    out_all_the_same: str = ""
    in_all_the_same: str = ""


BY_RULE = Decision(out="out by the policy's rule", into="in by the policy's rule")
BY_DRAW = Decision(out="not drawn", into="random draw")
BY_TURN = Decision(
    out="not picked: at every turn another document gained more", into="picked: the largest gain at its turn"
)
BY_MARGINALS = Decision(
    compared="marginals",
    out="below threshold",
    into="above threshold",
    out_all_the_same="exception: above threshold, out by rounding or swap",
    in_all_the_same="exception: below threshold, in by rounding or swap",
)
BY_QUALITY = Decision(
    compared="scores",
    out="quality below threshold",
    into="quality at or above threshold",
    out_all_the_same="exception: quality at or above threshold, out by lot among equals or for want of budget",
    in_all_the_same="exception: quality below threshold, fills what was left of the budget",
)
BY_LOGITS = Decision(
    compared="logits",
    out="logit below threshold",
    into="logit at or above threshold",
    out_all_the_same="exception: logit at or above threshold, out by lot among equals or for want of budget",
    in_all_the_same="exception: logit below threshold, fills what was left of the budget",
)


@dataclass(frozen=True, kw_only=True)
class Decided:
    """The threshold of the block, NaN where none decided, that of each group, and each document's reason.

    A group of which nothing is selected has an infinite threshold; without a decision by threshold there are none.
    """

    threshold: float
    thresholds_G: dict[int, float]
    reasons_N: NDArray[np.object_]


def decided(
    decision: Decision,
    totals_N: NDArray[np.float64],
    scores_N: NDArray[np.float64],
    logits_N: NDArray[np.float64],
    mask_N: NDArray[np.bool_],
    groups_N: NDArray[np.int64],
) -> Decided:
    """Threshold and reasons of a mask.

    The threshold is the value that as many documents reach as are selected; under quotas, reasons compare each
    document with that of its group.

    Args:
        decision: The policy's.
        totals_N: Total marginals; NaN where a metric has none, and then no threshold decides by them.
        scores_N: The policy's own scores.
        logits_N: Log-odds of the inclusion probabilities.
        mask_N: Who is in.
        groups_N: The group of each document.
    """
    if decision.compared == "marginals" and np.isnan(totals_N).any():
        decision = BY_RULE
    if decision.compared is None:
        reasons_N = _one_of([decision.out, decision.into], mask_N)
        return Decided(threshold=float("nan"), thresholds_G={}, reasons_N=reasons_N)
    compared_N = {"marginals": totals_N, "scores": scores_N, "logits": logits_N}[decision.compared]
    cuts_N, cuts_G = np.empty(len(compared_N)), {}
    for group in np.unique(groups_N).tolist():
        members = groups_N == group
        cuts_G[group] = _cut(compared_N[members], int(mask_N[members].sum()))
        cuts_N[members] = cuts_G[group]
    names = [decision.out, decision.in_all_the_same, decision.out_all_the_same, decision.into]
    return Decided(
        threshold=_cut(compared_N, int(mask_N.sum())),
        thresholds_G=cuts_G,
        reasons_N=_one_of(names, mask_N + 2 * (compared_N >= cuts_N)),
    )


def _cut(values_N: NDArray[np.float64], count: int) -> float:
    if count == 0:
        return float("inf")
    return float(-np.partition(-values_N, count - 1)[count - 1])


def _one_of(names: list[str], codes_N: NDArray[Any]) -> NDArray[np.object_]:
    return np.array(names, dtype=object)[codes_N.astype(np.intp)]
