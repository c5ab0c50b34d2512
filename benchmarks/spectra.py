"""Moment metrics on four kinds of vectors against greedy with exchanges. Knows no other metric.

Shape suffixes: N documents.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.data import clustered, drawn_quality, texts_of
from benchmarks.harness import Context, Opponents, Outcome, at_most, timed
from benchmarks.peers import Task, correlation, entropy, moments, volume
from datamask_pipeline.families import METRICS

TITLE = "Moment metrics on four kinds of vectors, N = 1 200 and 5 000"
QUESTION = "Does greedy with exchanges end above the engine anywhere, and how far is each mask proven to be from the best?"
LONG = True
DIMENSIONS, FEATURES = 64, 30_000
COPIED, CUT = 0.1, 20
"""Of the texts: the share that are near-copies of others, and of which part of its words such a copy lacks one."""
SIZES, BUDGETS, LAMBDAS = (1_200, 5_000), (40, 1_000), (0.0, 0.5)
Opponent = Callable[[Task], NDArray[np.int64]]
OPPONENTS: dict[str, tuple[Opponent, Opponent]] = {
    "Pair_simi": (moments.pair_simi_with_exchanges, moments.pair_simi),
    "DiSF_uncentred": (moments.disf_uncentred_with_exchanges, moments.disf_uncentred),
    "LogDet": (volume.greedy_with_exchanges, volume.greedy_with_exchanges),
    "Vendi": (entropy.greedy_with_exchanges, entropy.greedy),
    "DiSF": (correlation.greedy_with_exchanges, correlation.block_lazy_greedy),
}
"""With exchanges, and what is run where those would take hours: 1 000 documents of 5 000."""
TARGETS = {
    "LogDet": (0.1, 0.02),
    "Vendi": (0.2, 0.05),
    "Pair_simi": (0.01, 0.001),
    "DiSF_uncentred": (0.01, 0.001),
}
SLOW = ("Vendi", "DiSF")
"""Metrics whose opponents at 1 000 documents in 768 dimensions take more than ten minutes: not run there."""


def run(context: Context) -> Outcome:
    """Every metric, kind, size, budget and lambda, on the first seed; both are given the same constants."""
    outcome = Outcome()
    above: list[float] = []
    gaps: dict[tuple[str, int], list[float]] = {}
    for kind in KINDS:
        for size in SIZES:
            block = KINDS[kind](context, context.size(size))
            for metric in OPPONENTS:
                for budget in BUDGETS:
                    for lamb in LAMBDAS if budget < len(block[0]) else ():
                        _compare(context, outcome, kind, block, metric, budget, lamb, above, gaps)
    outcome.claims.append(
        at_most("an opponent above the engine by, largest share of the distance", 0.001, max(above), ".4f")
    )
    for (metric, budget), found in gaps.items():
        if metric in TARGETS:
            target = TARGETS[metric][BUDGETS.index(budget)]
            outcome.claims.append(
                at_most(f"{metric}, {budget} of 5 000: median gap", target, median(found), ".4f")
            )
    outcome.notes.append(
        "Isotropic, clustered and TF-IDF vectors have 64 dimensions, embeddings 768. The engine's time holds checks, "
        "certificate and evaluation, the scale's constants not."
    )
    return outcome


def _compare(
    context: Context,
    outcome: Outcome,
    kind: str,
    block: tuple[NDArray[np.float16], NDArray[np.float64]],
    metric: str,
    budget: int,
    lamb: float,
    above: list[float],
    gaps: dict[tuple[str, int], list[float]],
) -> None:
    (embeddings, quality), seed = block, context.seeds[0]
    name = f"{metric}, {kind}, {len(embeddings)}, {budget}, {lamb}"
    shared: dict[str, Any] = {
        "diversity": metric,
        "seed": seed,
        "lamb": lamb,
        "ratio": None,
        "num_documents": budget,
    }
    constants = timed(embeddings, quality, **shared).result.normalisation
    ours = timed(embeddings, quality, normalisation_constants=constants, **shared)
    outcome.rows.append(ours.row(f"{name}: datamask", seed))
    objective, gap = ours.result.objective, ours.result.certificate.gap
    if gap is not None and len(embeddings) == context.size(SIZES[1]):
        gaps.setdefault((metric, budget), []).append(gap)
    many = budget * len(embeddings) > 2**21
    if metric in SLOW and many and embeddings.shape[1] > DIMENSIONS:
        return
    opponents = Opponents(
        embeddings_ND=embeddings,
        quality_N=quality,
        metric=METRICS.make(metric),
        constants=constants,
        budget=budget,
        lamb=lamb,
    )
    found = opponents.run(OPPONENTS[metric][many])
    outcome.rows.append(found.row(f"{name}: {OPPONENTS[metric][many].__name__}", seed, objective.random))
    above.append(
        (found.objective - objective.value) / (max(found.objective, objective.value) - objective.random)
    )


def _isotropic(context: Context, size: int) -> tuple[NDArray[np.float16], NDArray[np.float64]]:
    draws = torch.Generator().manual_seed(context.seeds[0])
    return _scored(context, torch.randn(size, DIMENSIONS, generator=draws))


def _clustered(context: Context, size: int) -> tuple[NDArray[np.float16], NDArray[np.float64]]:
    return clustered(size, context.seeds[0], DIMENSIONS)


def _texts(context: Context, size: int) -> tuple[NDArray[np.float16], NDArray[np.float64]]:
    """TF-IDF of real texts and of near-copies, cut to the first singular vectors."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    draws = np.random.default_rng(context.seeds[0])
    texts = texts_of(context.documents, size - round(COPIED * size), context.seeds[0])
    for source in draws.integers(len(texts), size=size - len(texts)):
        words = texts[source].split()
        start = int(draws.integers(max(1, len(words))))
        texts.append(" ".join(words[:start] + words[start + len(words) // CUT :]))
    counts = TfidfVectorizer(max_features=FEATURES, sublinear_tf=True).fit_transform(texts)
    rows = TruncatedSVD(DIMENSIONS, random_state=0).fit_transform(counts)
    return _scored(context, torch.from_numpy(rows) + 1e-9)


def _embeddings(context: Context, size: int) -> tuple[NDArray[np.float16], NDArray[np.float64]]:
    return context.block(size, context.seeds[0])


def _scored(context: Context, rows_ND: torch.Tensor) -> tuple[NDArray[np.float16], NDArray[np.float64]]:
    embeddings_ND = torch.nn.functional.normalize(rows_ND.float()).half().numpy()
    return embeddings_ND, drawn_quality(embeddings_ND, context.seeds[0])


KINDS = {"isotropic": _isotropic, "clusters": _clustered, "texts": _texts, "embeddings": _embeddings}
