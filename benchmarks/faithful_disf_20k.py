"""The paper's learner against the default one on second moments. Knows what `faithful_20k` knows."""

from __future__ import annotations

from benchmarks.faithful_20k import against
from benchmarks.harness import Context, Outcome

TITLE = "The paper's learner, N = 20 000, DiSF_uncentred"
QUESTION = "The same where a reward costs a product of features by features for each of 128 masks."
LONG = True


def run(context: Context) -> Outcome:
    """As `faithful_20k`, on second moments: the paper's learner takes long."""
    return against(context, "DiSF_uncentred")
