"""Pair_graph on four kinds of vectors against all that others can do along its graph. Knows no other metric.

Shape suffixes: N documents.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.four_kinds import LAMBDAS
from benchmarks.harness import Context, Done, Opponents, Outcome, Row, at_most, one_thread, timed
from benchmarks.kinds import block_of, cells
from benchmarks.peers import Task
from benchmarks.peers.pair_graph import GraphTask, bounding_and_partitions, greedy
from benchmarks.peers.pair_search import annealing, greedy_with_exchanges
from datamask_pipeline import select_documents
from datamask_pipeline.diversity.pair_graph import PairGraph, SimilarityGraph

TITLE = "Pair_graph on four kinds of vectors, N = 600, 1 200 and 5 000"
QUESTION = (
    "Along a graph of ten nearest neighbours, does anybody end above the engine, how far do greedy and the partitioned "
    "greedy of Boether et al. fall behind, and how far is each mask proven to be from the best?"
)
LONG = True
BUDGETS = {600: (12, 120, 180), 1_200: (24, 240, 360), 5_000: (40, 1_000, 1_500)}
LARGE, SECONDS, MORE_SECONDS = 5_000, 2.0, 4.0
"""Processor seconds that the annealing of an opponent has, and those of so many documents."""
PARTITIONS = 8


@one_thread()
def run(context: Context) -> Outcome:
    """Every cell on the first seed, all by one thread on the same constants; a cell that was done at this commit is kept."""
    outcome, done = Outcome(), Done(context.folder / "along_graph.jsonl")
    for kind, size, budget in cells(context, BUDGETS):
        for lamb in LAMBDAS:
            cell = {"kind": kind, "N": size, "K": budget, "lambda": lamb}
            outcome.rows.append(done.row(cell, lambda: _compared(context, kind, size, budget, lamb)))  # noqa: B023
    ahead = min(row["ahead"] for row in outcome.rows)
    outcome.claims.append(
        at_most("an opponent above the engine, largest share of the distance", 0.001, -ahead, ".4f")
    )
    outcome.notes += [
        "A cell is of one seed. `ahead` is what the engine is above the best of its opponents, as a share of the larger "
        "distance from random (below 0: an opponent is above). The columns of `greedy` (lazy, in batches), `exchanges` "
        "(greedy, then exchanges until none gains), `annealing` (for 2 processor seconds, 4 of 5 000 documents) and "
        f"`partitions` (exact bounding, then greedy in {PARTITIONS} partitions and rounds, later ones fewer) "
        "tell how much of the engine's distance from random each reaches. Annealing goes by the clock: on another "
        "machine or seed it may end elsewhere. Opponents are given the graph: their seconds are "
        "without it, the engine's with it, and with checks, certificate and evaluation.",
        "At lambda 0 quality counts for nothing and ties are many; where some mask has no edge inside it, its value is the "
        "bound. Isotropic, clustered and TF-IDF vectors have 64 dimensions, embeddings 768. Clusters: half of the rows "
        "are near-copies. A tenth of the texts are.",
    ]
    return outcome


def _compared(context: Context, kind: str, size: int, budget: int, lamb: float) -> Row:
    embeddings, quality = block = block_of(context, kind, size)
    shared: dict[str, Any] = {
        "diversity": "Pair_graph",
        "seed": context.seeds[0],
        "lamb": lamb,
        "ratio": None,
        "num_documents": budget,
        "num_workers": 1,
    }
    constants = select_documents(*block, policy="quality_topk", **shared).normalisation
    ours = timed(*block, normalisation_constants=constants, **shared)
    objective, metric = ours.result.objective, PairGraph()
    opponents = Opponents(
        embeddings_ND=embeddings,
        quality_N=quality,
        metric=metric,
        constants=constants,
        budget=budget,
        lamb=lamb,
    )
    graph = metric.graph(torch.nn.functional.normalize(torch.from_numpy(embeddings.copy()).float()))
    methods: dict[str, Callable[[GraphTask], NDArray[np.int64]]] = {
        "greedy": greedy,
        "exchanges": greedy_with_exchanges,
        "annealing": partial(annealing, seconds=MORE_SECONDS if size >= LARGE else SECONDS),
        "partitions": partial(bounding_and_partitions, partitions=PARTITIONS, rounds=PARTITIONS),
    }
    found = {
        name: opponents.run(lambda task, method=method: method(_along(task, graph)))  # type: ignore[misc]
        for name, method in methods.items()
    }
    distance = objective.value - objective.random
    best = max(one.objective for one in found.values())
    row: Row = {
        "objective": objective.value,
        "ahead": (objective.value - best) / (max(best, objective.value) - objective.random),
        "gap": ours.result.certificate.gap,
        "cpu_seconds": ours.cpu_seconds,
    }
    row |= {name: (one.objective - objective.random) / distance for name, one in found.items()}
    row |= {f"{name}, cpu_seconds": found[name].cpu_seconds for name in ("greedy", "exchanges")}
    return row | {"mask": ours.row("", 0)["mask"]}


def _along(task: Task, graph: SimilarityGraph) -> GraphTask:
    """The same task, for which a pair inside the picks counts twice in the metric's sum."""
    return GraphTask(
        left_E=graph.left_E,
        right_E=graph.right_E,
        similarity_E=graph.similarity_E,
        linear_N=task.linear_N,
        scale=2 * task.scale / task.budget,
        budget=task.budget,
    )
