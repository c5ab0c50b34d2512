"""DiSF in correlation form against exact greedy at 5 000 documents. Knows no other metric."""

from __future__ import annotations

from benchmarks.harness import Context, Outcome, at_least, at_most, middle, timed

TITLE = "DiSF in correlation form, N = 5 000"
QUESTION = "Is the learner no worse than greedy on a metric that is not concave, in a fifth of its time?"
LONG = False
METRIC = "DiSF"
DATAMASK, GREEDY = "datamask", "incremental greedy"


def run(context: Context) -> Outcome:
    """At 5 000 documents; greedy's time grows as the square of their number."""
    return at_size(context, context.size(5_000))


def at_size(context: Context, size: int) -> Outcome:
    """The learner on every seed; greedy, which computes every exact marginal anew at each pick, on the first."""
    outcome = Outcome()
    for turn, seed in enumerate(context.seeds):
        embeddings, quality = context.block(size, seed)
        ours = timed(embeddings, quality, diversity=METRIC, seed=seed)
        outcome.rows.append(ours.row(DATAMASK, seed))
        if turn:
            continue
        frozen = ours.result.normalisation
        greedy = timed(
            embeddings,
            quality,
            diversity=METRIC,
            policy="greedy",
            seed=seed,
            normalisation_constants=frozen,
        )
        outcome.rows.append(greedy.row(GREEDY, seed))
        higher = ours.result.objective.value - greedy.result.objective.value
        outcome.claims.append(at_least("objective above greedy's by", 0.0, higher))
    ratio = middle(outcome.rows, DATAMASK, "seconds") / middle(outcome.rows, GREEDY, "seconds")
    outcome.claims.append(at_most("share of greedy's time", 0.2, ratio))
    return outcome
