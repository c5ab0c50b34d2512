"""DiSF in correlation form against first-order greedy at 20 000 documents. Knows no other metric."""

from __future__ import annotations

from benchmarks.harness import Context, Outcome, arithmetic, at_least, at_most, middle, timed

TITLE = "DiSF in correlation form, N = 20 000"
QUESTION = "Is the learner no worse than greedy on a metric that is not concave, in a fifth of its time?"
LONG = False


def run(context: Context) -> Outcome:
    """The learner on every seed; greedy, which refreshes its matrix at each pick, on the first."""
    outcome = Outcome()
    for turn, seed in enumerate(context.seeds):
        embeddings, quality = context.block(context.size(20_000), seed)
        ours = timed(embeddings, quality, diversity="DiSF", dtype=arithmetic(), seed=seed)
        outcome.rows.append(ours.row("datamask", seed))
        if turn:
            continue
        greedy = timed(
            embeddings,
            quality,
            diversity="DiSF",
            policy="greedy",
            seed=seed,
            normalisation_constants=ours.result.normalisation,
        )
        outcome.rows.append(greedy.row("first-order greedy", seed))
        higher = ours.result.objective.value - greedy.result.objective.value
        outcome.claims.append(at_least("objective above greedy's by", 0.0, higher))
    ratio = middle(outcome.rows, "datamask", "seconds") / middle(
        outcome.rows, "first-order greedy", "seconds"
    )
    outcome.claims.append(at_most("share of greedy's time", 0.2, ratio))
    return outcome
