"""Moment metrics against block-lazy greedy on two kinds of vectors. Knows no other metric."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import clustered
from benchmarks.harness import (
    Context,
    Opponents,
    Opposed,
    Outcome,
    Selected,
    at_least,
    at_most,
    attainment,
    both_orders,
    middle,
    timed,
)
from benchmarks.peers import moments as peers
from datamask_pipeline.diversity.disf_uncentred import DiSFUncentred
from datamask_pipeline.diversity.pair_simi import PairSimilarity

TITLE = "Moment metrics, N = 100 000 and 60 000 in clusters"
QUESTION = (
    "Does the relaxed learner reach greedy's objective in a tenth of the processor time of the fastest exact greedy, "
    "with a proof?"
)
LONG = False
METRICS = ((PairSimilarity, peers.pair_simi), (DiSFUncentred, peers.disf_uncentred))
WEB, CLUSTERS = "100 000", "60 000 in clusters"


def run(context: Context) -> Outcome:
    """Both on every seed and both kinds of vectors, in both orders."""
    outcome = Outcome()
    for metric, opponent in METRICS:
        for kind in (WEB, CLUSTERS):
            _compare(context, outcome, metric, opponent, kind)
    outcome.notes.append(
        "Both are given the same constants, of a run before. Block-lazy greedy is exact up to float32 rounding. In "
        "clusters: 500 centres, half of the rows near-copies of others."
    )
    return outcome


def _compare(context: Context, outcome: Outcome, metric: Any, opponent: Any, kind: str) -> None:
    name, reached = f"{metric.name}, {kind}", []
    for turn, seed in enumerate(context.seeds):
        if kind == WEB:
            embeddings, quality = context.block(context.size(100_000), seed)
        else:
            embeddings, quality = clustered(context.size(60_000), seed)
        ours, greedy = _pair(embeddings, quality, metric, opponent, seed, turn)
        random, value = ours.result.objective.random, ours.result.objective.value
        outcome.rows += [
            ours.row(f"{name}: datamask", seed),
            greedy.row(f"{name}: block-lazy greedy", seed, random),
        ]
        reached.append(attainment(value, random, greedy.objective))
    outcome.claims.append(at_least(f"{name}: smallest attainment of greedy's", 0.999, min(reached), ".4%"))
    gap = middle(outcome.rows, f"{name}: datamask", "gap")
    outcome.claims.append(at_most(f"{name}: certified gap", 0.001, gap, ".3%"))
    worked = middle(outcome.rows, f"{name}: datamask", "cpu_seconds")
    share = worked / middle(outcome.rows, f"{name}: block-lazy greedy", "cpu_seconds")
    outcome.claims.append(at_most(f"{name}: share of greedy's processor time", 0.1, share))


def _pair(
    embeddings: NDArray[np.float16],
    quality: NDArray[np.float64],
    metric: Any,
    opponent: Any,
    seed: int,
    turn: int,
) -> tuple[Selected, Opposed]:
    shared: dict[str, Any] = {"diversity": metric.name, "seed": seed}
    first = timed(embeddings, quality, **shared).result
    opponents = Opponents(
        embeddings_ND=embeddings,
        quality_N=quality,
        metric=metric(),
        constants=first.normalisation,
        budget=int(first.mask.sum()),
    )
    ours, greedy = both_orders(
        lambda: timed(embeddings, quality, normalisation_constants=first.normalisation, **shared),
        lambda: opponents.run(opponent),
        turn,
    )
    return ours, greedy
