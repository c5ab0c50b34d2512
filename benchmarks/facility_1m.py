"""Facility location on lists from clusters, up to a million documents. Knows no opponent: there is none of that size."""

from __future__ import annotations

import resource

from benchmarks.harness import SIZES, Claim, Context, Outcome, at_most, exponent, timed

TITLE = "Facility location, N from 10 000 to 1 000 000"
QUESTION = (
    "Does a million documents finish in 24 GB, in minutes, with a bound, and does time grow in proportion?"
)
LONG = True


def run(context: Context) -> Outcome:
    """One seed; lists come from clusters at every size, as they do in the largest blocks."""
    outcome, seed = Outcome(), context.seeds[0]
    sizes = [context.size(size) for size in SIZES]
    embeddings, quality = context.block(sizes[-1], seed)
    seconds = []
    for size in sizes:
        options = {"Facility": {"exact_rows": 1, "num_landmarks": min(size // 2, 20_000)}}
        ours = timed(
            embeddings[:size],
            quality[:size],
            diversity="Facility",
            diversity_options=options,
            seed=seed,
        )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        learner = ours.result.record["learner"]
        row = ours.row("lists from clusters", seed) | {"N": size, "peak GiB": peak}
        outcome.rows.append(row | {name: learner[name] for name in ("neighbours", "missed_excess")})
        seconds.append(ours.total_seconds)
    certificate = ours.result.certificate
    outcome.series["lists from clusters"] = {"x": [float(size) for size in sizes], "y": seconds}
    outcome.claims = [
        at_most(f"N = {sizes[-1]:,}: peak memory of the process, GiB", 24.0, peak),
        at_most(f"N = {sizes[-1]:,}: minutes, everything included", 15.0, ours.total_seconds / 60),
        Claim(
            text=f"N = {sizes[-1]:,}: a bound",
            target="finite",
            measured="none" if certificate.gap is None else f"gap {certificate.gap:.2%}",
            met=certificate.bound is not None,
        ),
        at_most("exponent of the whole call's time", 1.1, exponent(sizes, seconds), ".2f"),
    ]
    outcome.notes.append(f"Certificate: {certificate.method}.")
    return outcome
