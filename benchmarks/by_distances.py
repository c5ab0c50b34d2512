"""Policy `gist` against the package gist-select and GIST as published on all distances. Knows no metric.

Shape suffixes: N documents, D dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.four_kinds import BUDGETS
from benchmarks.harness import Context, Done, Outcome, Row, at_least, one_thread, processor_seconds, timed
from benchmarks.kinds import block_of, cells
from benchmarks.peers import Task
from benchmarks.peers.gist import dense, gist_select, value_of

TITLE = "GIST on four kinds of vectors, N = 600, 1 200 and 5 000"
QUESTION = "Does policy `gist` reach the value of the published method and of its authors' package, and in what time?"
LONG = True
LAMBDAS = (0.1, 0.5, 0.9)
STEP = 0.05
MOST_WORK = 2**25
"""Documents times those to be chosen times dimensions: the package takes minutes where that is more, and is not run."""


@one_thread()
def run(context: Context) -> Outcome:
    """Every cell on the first seed, all by one thread; a cell that was done at this commit is kept."""
    outcome, done = Outcome(), Done(context.folder / "by_distances.jsonl")
    for kind, size, budget in cells(context, BUDGETS):
        for lamb in LAMBDAS:
            cell = {"kind": kind, "N": size, "K": budget, "lambda": lamb}
            outcome.rows.append(done.row(cell, lambda: _compared(context, kind, size, budget, lamb)))  # noqa: B023
    worst = min(row["value"] / row["published"] for row in outcome.rows)
    outcome.claims.append(at_least("share of the published method's value, least", 0.99, worst, ".4f"))
    outcome.notes.append(
        "Values are lambda times the mean quality of those chosen, 0 that of all documents and 1 that of the best, plus 1 - "
        "lambda times the smallest Euclidean distance of two as a share of the largest that so many can all have. "
        f"All take thresholds {STEP:.0%} apart. `published` is the method on all distances at once, from the block's own "
        "diameter, of whose sets only those of exactly K count. The package's are as it returns them: of two documents "
        "(`its K`) the distance is larger than K can have, and such a value says nothing of masks of K; it is not run on "
        "the largest cells. Values are of one seed. `seconds` are of the search, `cpu_seconds` of the whole call: most of "
        "them go to the scale of Pair_simi, which the mask is evaluated by and GIST does not read."
    )
    return outcome


def _compared(context: Context, kind: str, size: int, budget: int, lamb: float) -> Row:
    embeddings_ND, quality_N = block = block_of(context, kind, size)
    shared: dict[str, Any] = {"lamb": lamb, "ratio": None, "num_documents": budget, "num_workers": 1}
    ours = timed(*block, policy="gist", distance_step=STEP, seed=context.seeds[0], **shared)
    zero, one = ours.result.normalisation["quality"]
    # GIST takes no utility below 0: all are raised by as much, which every mask of K documents has once.
    raised = lamb * (zero - float(quality_N.min())) / (one - zero)
    task = Task(
        embeddings_ND=embeddings_ND,
        linear_N=lamb * (quality_N - quality_N.min()) / (one - zero) / budget,
        scale=(1 - lamb) / math.sqrt(2 * budget / (budget - 1)),
        budget=budget,
    )
    published, seconds = _timed(partial(dense, eps=STEP, exactly=True), task)
    row: Row = {
        "value": value_of(task, np.flatnonzero(ours.result.mask)) - raised,
        "published": value_of(task, published) - raised,
        "package": None,
        "its K": None,
        "seconds": ours.seconds,
        "cpu_seconds": ours.cpu_seconds,
        "published, cpu_seconds": seconds,
        "package, cpu_seconds": None,
    }
    if embeddings_ND.size * budget <= MOST_WORK:
        picks, seconds = _timed(partial(gist_select, eps=STEP), task)
        row |= {
            "package": value_of(task, picks) - raised,
            "its K": len(picks),
            "package, cpu_seconds": seconds,
        }
    return row | {"mask": ours.row("", 0)["mask"]}


def _timed(method: Callable[[Task], NDArray[np.int64]], task: Task) -> tuple[NDArray[np.int64], float]:
    begun = processor_seconds()
    picks = method(task)
    return picks, processor_seconds() - begun
