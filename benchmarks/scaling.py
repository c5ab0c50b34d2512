"""Time against the number of documents. Knows no opponent."""

from __future__ import annotations

import numpy as np

from benchmarks.harness import Context, Outcome, arithmetic, at_most, timed

TITLE = "Scaling, N from 10 000 to 1 000 000"
QUESTION = "Does time grow no faster than the number of documents to the power 1.1?"
LONG = False
SIZES = (10_000, 31_600, 100_000, 316_000, 1_000_000)
METRICS = ("Pair_simi", "DiSF_uncentred", "Facility")


def run(context: Context) -> Outcome:
    """One seed, every size; Facility on lists from clusters at every size, as in the largest blocks."""
    outcome, seed = Outcome(), context.seeds[0]
    sizes = [context.size(size) for size in SIZES]
    embeddings, quality = context.block(max(sizes), seed)
    for metric in METRICS:
        seconds = []
        for size in sizes:
            settings = {"diversity": metric, "seed": seed, "dtype": arithmetic()}
            if metric == "Facility":
                settings["diversity_options"] = {
                    metric: {"exact_rows": 1, "num_landmarks": min(size // 2, 5_000)}
                }
            ours = timed(embeddings[:size], quality[:size], **settings)
            outcome.rows.append(ours.row(metric, seed) | {"N": size})
            seconds.append(ours.total_seconds)
        exponent = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
        outcome.claims.append(at_most(f"{metric}: exponent of the whole call's time", 1.1, exponent, ".2f"))
        outcome.series[metric] = {"x": [float(size) for size in sizes], "y": seconds}
    return outcome
