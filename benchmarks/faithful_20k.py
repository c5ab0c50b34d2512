"""The paper's learner against the default one at 20 000 documents. Knows moment metrics only."""

from __future__ import annotations

from benchmarks.harness import Context, Outcome, at_least, at_most, middle, timed

TITLE = "The paper's learner, N = 20 000, Pair_simi"
QUESTION = "Is the default a hundred times as fast as 5 000 epochs of the paper's learner, and ends higher?"
LONG = False
METRIC = "Pair_simi"
EPOCHS = 5000


def run(context: Context) -> Outcome:
    """Both learners; the paper's one on the first seed, with the settings of its quick test."""
    return against(context, METRIC)


def against(context: Context, metric: str) -> Outcome:
    """Both learners on one metric."""
    outcome = Outcome()
    for turn, seed in enumerate(context.seeds):
        embeddings, quality = context.block(context.size(20_000), seed)
        ours = timed(embeddings, quality, diversity=metric, seed=seed)
        outcome.rows.append(ours.row("datamask", seed))
        if turn:
            continue
        paper = timed(
            embeddings,
            quality,
            diversity=metric,
            policy="policy_gradient",
            num_epochs=context.epochs(EPOCHS),
            seed=seed,
            normalisation_constants=ours.result.normalisation,
        )
        outcome.rows.append(paper.row("policy_gradient", seed))
        curve = paper.result.curve
        outcome.series["policy_gradient, mean reward of the batch"] = {
            "x": curve.column("wall_seconds").to_pylist(),
            "y": curve.column("objective").to_pylist(),
        }
        for name, selected in (("datamask, final", ours), ("policy_gradient, final", paper)):
            value = selected.result.objective.value
            outcome.series[name] = {"x": [selected.seconds], "y": [value]}
        higher = ours.result.objective.value - paper.result.objective.value
        outcome.claims.append(at_least("objective above the paper's learner by", 0.0, higher))
    worked = middle(outcome.rows, "datamask", "cpu_seconds")
    ratio = worked / middle(outcome.rows, "policy_gradient", "cpu_seconds")
    outcome.claims.append(at_most("share of the paper's learner's processor time", 0.01, ratio, ".4f"))
    outcome.notes.append(
        f"policy_gradient: group_relative estimator, {context.epochs(EPOCHS)} epochs, 128 rollouts, batches of a tenth, "
        "learning rate 10 to 1, logits from quality."
    )
    return outcome
