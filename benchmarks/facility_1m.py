"""Facility location at a million documents. Knows no opponent: there is none of that size."""

from __future__ import annotations

import resource

from benchmarks.harness import Claim, Context, Outcome, arithmetic, at_most, timed

TITLE = "Facility location, N = 1 000 000"
QUESTION = (
    "Does it finish in 24 GB, in minutes, with a bound, where exact solvers cannot hold the similarities?"
)
LONG = False


def run(context: Context) -> Outcome:
    """Once, on the first seed: lists from clusters, and a bound from a sample of references."""
    outcome, seed = Outcome(), context.seeds[0]
    size = context.size(1_000_000)
    embeddings, quality = context.block(size, seed)
    # A shrunken run takes the road of large blocks too.
    options = {"Facility": {"exact_rows": min(100_000, size // 2), "num_landmarks": min(20_000, size // 2)}}
    ours = timed(
        embeddings, quality, diversity="Facility", diversity_options=options, dtype=arithmetic(), seed=seed
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    row = ours.row("lists from clusters", seed)
    outcome.rows = [row | {"peak GiB": peak} | ours.result.record["learner"]]
    bound = ours.result.certificate.bound
    outcome.claims = [
        at_most("peak memory, GiB", 24.0, peak),
        at_most("minutes, everything included", 15.0, ours.total_seconds / 60),
        Claim(
            text="a bound",
            target="finite",
            measured="none" if bound is None else f"gap {ours.result.certificate.gap:.2%}",
            met=bound is not None,
        ),
    ]
    outcome.notes.append(f"Certificate: {ours.result.certificate.method}.")
    return outcome
