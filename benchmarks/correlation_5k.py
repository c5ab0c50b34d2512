"""DiSF in correlation form against greedy by exact marginals at 5 000 documents. Knows no other metric."""

from __future__ import annotations

from typing import Any

from benchmarks.harness import (
    Context,
    Opponents,
    Opposed,
    Outcome,
    Selected,
    at_least,
    at_most,
    both_orders,
    middle,
    timed,
)
from benchmarks.peers.correlation import block_lazy_greedy, exact_greedy
from datamask_pipeline.diversity.disf import DiSF

TITLE = "DiSF in correlation form, N = 5 000"
QUESTION = (
    "Is the learner no worse than greedy by exact marginals on a metric that is not concave, in a fifth of its "
    "processor time?"
)
LONG = False
METRIC = "DiSF"
AS_HIGH = 1e-4
"""Block-lazy greedy is an opponent where it ends no further than this below exact greedy."""
DATAMASK, GREEDY, EXACT = "datamask", "block-lazy greedy", "exact greedy"
OWN = "the engine's policy greedy"


def run(context: Context) -> Outcome:
    """At 5 000 documents, where two that scan every document at each pick are at hand too, on the first seed."""
    return at_size(context, context.size(5_000), exact=True)


def at_size(context: Context, size: int, *, exact: bool) -> Outcome:
    """The learner and block-lazy greedy on every seed, in both orders."""
    outcome = Outcome()
    higher, rival = [], GREEDY
    for turn, seed in enumerate(context.seeds):
        embeddings, quality = context.block(size, seed)
        shared: dict[str, Any] = {"diversity": METRIC, "seed": seed}
        first = timed(embeddings, quality, **shared).result
        shared["normalisation_constants"] = first.normalisation
        opponents = Opponents(
            embeddings_ND=embeddings,
            quality_N=quality,
            metric=DiSF(),
            constants=first.normalisation,
            budget=int(first.mask.sum()),
        )
        ours, greedy = _both(embeddings, quality, shared, opponents, turn)
        random = ours.result.objective.random
        outcome.rows += [ours.row(DATAMASK, seed), greedy.row(GREEDY, seed, random)]
        higher.append(ours.result.objective.value - greedy.objective)
        if exact and not turn:
            scanning = opponents.run(exact_greedy)
            outcome.rows.append(scanning.row(EXACT, seed, random))
            own = timed(embeddings, quality, policy="greedy", **shared)
            outcome.rows.append(own.row(OWN, seed))
            higher += [
                ours.result.objective.value - value
                for value in (scanning.objective, own.result.objective.value)
            ]
            lost = scanning.objective - greedy.objective
            rival = GREEDY if lost <= AS_HIGH else EXACT
            outcome.notes.append(f"Block-lazy greedy ended {lost:.2g} below exact greedy, on the first seed.")
    outcome.claims.append(at_least("objective above greedy's by, smallest", 0.0, min(higher)))
    ratio = middle(outcome.rows, DATAMASK, "cpu_seconds") / middle(outcome.rows, rival, "cpu_seconds")
    outcome.claims.append(at_most(f"share of {rival}'s processor time", 0.2, ratio))
    return outcome


def _both(
    embeddings: Any, quality: Any, shared: dict[str, Any], opponents: Opponents, turn: int
) -> tuple[Selected, Opposed]:
    ours, greedy = both_orders(
        lambda: timed(embeddings, quality, **shared), lambda: opponents.run(block_lazy_greedy), turn
    )
    return ours, greedy
