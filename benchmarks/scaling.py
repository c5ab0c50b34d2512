"""Time against the number of documents. Knows no opponent."""

from __future__ import annotations

from benchmarks.harness import SIZES, Context, Outcome, at_most, exponent, timed

TITLE = "Moment metrics, N from 10 000 to 1 000 000"
QUESTION = "Does time grow no faster than the number of documents to the power 1.1?"
LONG = False
METRICS = ("Pair_simi", "DiSF_uncentred")


def run(context: Context) -> Outcome:
    """One seed, every size; facility location has a file of its own."""
    outcome, seed = Outcome(), context.seeds[0]
    sizes = [context.size(size) for size in SIZES]
    embeddings, quality = context.block(max(sizes), seed)
    for metric in METRICS:
        seconds = []
        for size in sizes:
            ours = timed(embeddings[:size], quality[:size], diversity=metric, seed=seed)
            outcome.rows.append(ours.row(metric, seed) | {"N": size})
            seconds.append(ours.total_seconds)
        outcome.claims.append(
            at_most(f"{metric}: exponent of the whole call's time", 1.1, exponent(sizes, seconds), ".2f")
        )
        outcome.series[metric] = {"x": [float(size) for size in sizes], "y": seconds}
    return outcome
