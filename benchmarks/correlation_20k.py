"""DiSF in correlation form against block-lazy greedy at 20 000 documents. Knows no other metric."""

from __future__ import annotations

from benchmarks.correlation_5k import QUESTION as QUESTION
from benchmarks.correlation_5k import at_size
from benchmarks.harness import Context, Outcome

TITLE = "DiSF in correlation form, N = 20 000"
LONG = True


def run(context: Context) -> Outcome:
    """Without the greedy that scans every document at each pick."""
    return at_size(context, context.size(20_000), exact=False)
