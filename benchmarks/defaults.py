"""Every policy on every metric: what the choice of defaults rests on. Knows no size but a small one."""

from __future__ import annotations

from benchmarks.harness import Context, Outcome, Row, attainment, timed

TITLE = "Which learner for which metric"
QUESTION = "Which policy ends highest on each metric, and at what price?"
LONG = True
DOCUMENTS = 3_000
METRICS = ("Pair_simi", "DiSF_uncentred", "DiSF", "LogDet", "Vendi", "Facility")
EPOCHS = 150
SPECTRAL = ("LogDet", "Vendi")
SPECTRAL_EPOCHS = 10
"""An evaluation of these takes an eigendecomposition: one seed, and few epochs of the paper's learner."""


def run(context: Context) -> Outcome:
    """Attainment is against the best policy of the metric and seed."""
    outcome = Outcome()
    for metric in METRICS:
        spectral = metric in SPECTRAL
        epochs = context.epochs(SPECTRAL_EPOCHS if spectral else EPOCHS)
        for seed in context.seeds[:1] if spectral else context.seeds:
            embeddings, quality = context.block(context.size(DOCUMENTS), seed)
            first = timed(embeddings, quality, diversity=metric, seed=seed)
            shared = {
                "diversity": metric,
                "seed": seed,
                "normalisation_constants": first.result.normalisation,
            }
            learner = {"policy": "policy_gradient", "num_epochs": epochs}
            found = [
                first.row("datamask", seed),
                timed(embeddings, quality, policy="random", **shared).row("random", seed),
                timed(embeddings, quality, policy="quality_topk", **shared).row("quality_topk", seed),
                timed(embeddings, quality, policy="semdedup", **shared).row("semdedup", seed),
                timed(embeddings, quality, policy="greedy", **shared).row("greedy", seed),
                timed(embeddings, quality, **learner, num_rollouts=32, **shared).row(
                    "policy_gradient, group_relative", seed
                ),
                timed(
                    embeddings, quality, **learner, estimator="counterfactual", num_rollouts=1, **shared
                ).row("policy_gradient, counterfactual", seed),
            ]
            best = max(row["objective"] for row in found)
            outcome.rows += [_named(row, metric, best) for row in found]
    outcome.notes.append(
        f"policy_gradient ran {context.epochs(EPOCHS)} epochs, {context.epochs(SPECTRAL_EPOCHS)} on "
        f"{' and '.join(SPECTRAL)}: where a few hundred milliseconds decide, it has not had thousands of epochs."
    )
    return outcome


def _named(row: Row, metric: str, best: float) -> Row:
    reached = attainment(row["objective"], row["random"], best)
    return row | {"method": f"{metric}: {row['method']}", "attainment": reached}
