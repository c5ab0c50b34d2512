"""Facility location against dense lazy greedy on demand at 100 000 documents. Knows no other metric."""

from __future__ import annotations

from benchmarks.harness import Context, Outcome, at_least, at_most, attainment, timed

TITLE = "Facility location, N = 100 000"
QUESTION = (
    "The same where the similarities no longer fit in memory and dense lazy greedy computes them on demand."
)
LONG = True


def run(context: Context) -> Outcome:
    """Once, on the first seed."""
    outcome, seed = Outcome(), context.seeds[0]
    embeddings, quality = context.block(context.size(100_000), seed)
    ours = timed(embeddings, quality, diversity="Facility", seed=seed)
    dense = timed(
        embeddings,
        quality,
        diversity="Facility",
        policy="greedy",
        seed=seed,
        normalisation_constants=ours.result.normalisation,
    )
    outcome.rows = [ours.row("lists", seed), dense.row("dense lazy greedy", seed)]
    reached = attainment(
        ours.result.objective.value, ours.result.objective.random, dense.result.objective.value
    )
    outcome.claims = [
        at_least("attainment of dense lazy greedy's", 0.98, reached, ".2%"),
        at_most("share of its time", 0.1, ours.seconds / dense.seconds),
    ]
    return outcome
