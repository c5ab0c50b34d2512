"""Moment metrics against incremental greedy at 100 000 documents. Knows no other metric."""

from __future__ import annotations

from benchmarks.harness import Context, Outcome, at_least, at_most, attainment, middle, timed

TITLE = "Moment metrics, N = 100 000"
QUESTION = (
    "Does the relaxed learner reach incremental greedy's objective in a tenth of its time, with a proof?"
)
LONG = False
METRICS = ("Pair_simi", "DiSF_uncentred")


def run(context: Context) -> Outcome:
    """The learner on every seed; greedy, which takes minutes, on the first one, between two runs of the learner."""
    outcome = Outcome()
    for metric in METRICS:
        for turn, seed in enumerate(context.seeds):
            embeddings, quality = context.block(context.size(100_000), seed)
            ours = timed(embeddings, quality, diversity=metric, seed=seed)
            outcome.rows.append(ours.row(f"{metric}: datamask", seed))
            if turn:
                continue
            frozen = ours.result.normalisation
            greedy = timed(
                embeddings,
                quality,
                diversity=metric,
                policy="greedy",
                seed=seed,
                normalisation_constants=frozen,
            )
            outcome.rows.append(greedy.row(f"{metric}: incremental greedy", seed))
            again = timed(embeddings, quality, diversity=metric, seed=seed)
            outcome.rows.append(again.row(f"{metric}: datamask", seed))
            reached = attainment(
                ours.result.objective.value, ours.result.objective.random, greedy.result.objective.value
            )
            outcome.claims.append(at_least(f"{metric}: attainment of greedy's", 0.999, reached, ".4%"))
        gap = middle(outcome.rows, f"{metric}: datamask", "gap")
        ratio = middle(outcome.rows, f"{metric}: datamask", "seconds") / middle(
            outcome.rows, f"{metric}: incremental greedy", "seconds"
        )
        outcome.claims.append(at_most(f"{metric}: certified gap", 0.001, gap, ".3%"))
        outcome.claims.append(at_most(f"{metric}: share of greedy's time", 0.1, ratio))
    outcome.notes.append("Greedy ran on the first seed only, the learner before and after it.")
    return outcome
