"""Rollouts of the paper's learner: its optimisation curves and their number G. Knows one metric."""

from __future__ import annotations

from statistics import median

from benchmarks.harness import Context, Outcome, timed

TITLE = "Optimisation curves and the number of rollouts"
QUESTION = "What do more rollouts buy the paper's learner, and what does another advantage buy?"
LONG = False
METRIC = "Pair_simi"
DOCUMENTS, EPOCHS = 4_000, 400
ROLLOUTS = (2, 8, 32, 128)


def run(context: Context) -> Outcome:
    """Every number of rollouts with the group-relative estimator, then the other estimators."""
    outcome = Outcome()
    arms = [("group_relative", rollouts) for rollouts in ROLLOUTS]
    arms += [("counterfactual", 1), ("counterfactual", 8), ("expected", None)]
    for seed in context.seeds:
        embeddings, quality = context.block(context.size(DOCUMENTS), seed)
        best = timed(embeddings, quality, diversity=METRIC, seed=seed)
        outcome.rows.append(best.row("datamask", seed))
        for estimator, rollouts in arms:
            name = estimator if rollouts is None else f"{estimator}, G = {rollouts}"
            run_ = timed(
                embeddings,
                quality,
                diversity=METRIC,
                seed=seed,
                policy="policy_gradient",
                estimator=estimator,
                **({} if rollouts is None else {"num_rollouts": rollouts}),
                num_epochs=context.epochs(EPOCHS),
                normalisation_constants=best.result.normalisation,
            )
            outcome.rows.append(run_.row(name, seed))
            if seed == context.seeds[0]:
                rewards = run_.result.curve.column("objective").to_pylist()
                outcome.series[name] = {
                    "x": [float(i) for i in range(1, len(rewards) + 1)],
                    "y": _smooth(rewards),
                }
    return outcome


def _smooth(values: list[float], width: int = 15) -> list[float]:
    """Running median, so that curves of noisy batches can be told apart."""
    return [median(values[max(0, i - width) : i + width + 1]) for i in range(len(values))]
