"""One selection over shards on disk: throughput, memory, and what blocks that know nothing of each other lose.

Shape suffixes: N documents.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import (
    LAMB,
    RATIO,
    Context,
    Outcome,
    at_least,
    at_most,
    attainment,
    both_orders,
)
from benchmarks.shard_data import in_one, reduced, shards_in, write_shards
from datamask_pipeline import Given, Shard, select_documents, select_over_shards
from datamask_pipeline.families import METRICS
from datamask_pipeline.selection.sharded import ShardedVectors

TITLE = "One objective over shards, 1 000 000 x 768 and 10 000 000 x 64 float16 on disk"
QUESTION = "Do two processes keep up with two copies, is memory bounded, and what do independent blocks lose?"
LONG = True
DOCUMENTS, MANY, SHARDS, BLOCK = 1_000_000, 10_000_000, 10, 100_000
NARROW = 64
"""Dimensions of the ten million, 1.3 GB, and of the million that is selected from in blocks."""
METRIC_NAMES = ("Pair_simi", "DiSF_uncentred")
TURNS = 3
Told = dict[str, Any]


def run(context: Context) -> Outcome:
    """Ten shards of mixes of their own, each question on the same ones."""
    outcome, seed = Outcome(), context.seeds[0]
    size = context.size(DOCUMENTS)
    wide, small, large = (context.folder / f"shards-{name}" for name in ("wide", "small", "large"))
    narrow = reduced(context.base, NARROW)
    for folder, base, number in (
        (wide, context.base, size),
        (small, narrow, size),
        (large, narrow, context.size(MANY)),
    ):
        shutil.rmtree(folder, ignore_errors=True)
        write_shards(folder, base, SHARDS, number // SHARDS, seed)
    _throughput(outcome, wide, size)
    _memory(outcome, small, large)
    for metric in METRIC_NAMES:
        _against_blocks(outcome, small, metric, size * BLOCK // DOCUMENTS)
    for folder in (wide, small, large):
        shutil.rmtree(folder)
    outcome.notes.append(
        "A process has one thread. Throughput is of the call, in which processes are started, over documents of the one "
        "selection or of both copies; memory is anonymous (RssAnon), sampled fifty times a second. Union: the masks of all "
        "blocks together, on the scale of the selection over shards."
    )
    return outcome


def _working(folder: Path, metric: str, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.shards_work", str(folder), metric, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _told(process: subprocess.Popen[str]) -> Told:
    """
    Raises:
        subprocess.CalledProcessError: it failed.
    """
    output, _ = process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    told: Told = json.loads(output.splitlines()[-1])
    return told


def _row(method: str, told: Told) -> Told:
    row = {"method": method} | {name: told[name] for name in ("seconds", "cpu_seconds", "objective", "gap")}
    if "driver_bytes" in told:
        row["leading process GB"] = told["driver_bytes"] / 1e9
        row["other processes GB"] = told["member_bytes"] / 1e9
    return row


def _throughput(outcome: Outcome, folder: Path, size: int) -> None:
    """Two processes on one selection, and two selections of a process each at the same time; the peer in memory once."""
    metric = METRIC_NAMES[-1]

    spent: dict[str, list[float]] = {"joint": [], "copies": []}

    def joint() -> float:
        told = _told(_working(folder, metric, "--workers", "2"))
        spent["joint"].append(told["cpu_seconds"])
        outcome.rows.append(_row(f"{metric}, N = {size:,}: two processes", told))
        return size / float(told["seconds"])

    def copies() -> float:
        started = [_working(folder, metric) for _ in range(2)]
        found = [_told(process) for process in started]
        spent["copies"].append(sum(told["cpu_seconds"] for told in found) / len(found))
        outcome.rows += [_row(f"{metric}, N = {size:,}: two copies of one process", told) for told in found]
        return sum(size / float(told["seconds"]) for told in found)

    ratios = []
    for turn in range(TURNS):
        together, apart = both_orders(joint, copies, turn)
        ratios.append(together / apart)
    told = _told(_working(folder, metric, "--in-memory"))
    outcome.rows.append(_row(f"{metric}, N = {size:,}: in one process, as one block", told))
    worked = [apart / together for together, apart in zip(spent["joint"], spent["copies"], strict=True)]
    outcome.claims += [
        at_least(f"{metric}: throughput of two processes, as a share of two copies'", 0.9, median(ratios)),
        at_least("the same by processor seconds, imports of each process included", 0.9, median(worked)),
    ]


def _memory(outcome: Outcome, small: Path, large: Path) -> None:
    for metric in METRIC_NAMES:
        few, many = (
            _told(_working(folder, metric, "--workers", "2", "--memory")) for folder in (small, large)
        )
        for told, folder in ((few, small), (many, large)):
            outcome.rows.append(
                _row(f"{metric}, N = {_size(shards_in(folder)):,} x {NARROW}: two processes", told)
            )
        outcome.claims += [
            at_most(
                f"{metric}, N = 10 000 000: anonymous memory of any process, GB",
                2.0,
                max(many["driver_bytes"], many["member_bytes"]) / 1e9,
            ),
            at_most(
                f"{metric}: of the leading process, as a multiple of its own at 1 000 000",
                1.1,
                many["driver_bytes"] / few["driver_bytes"],
            ),
        ]


def _size(shards: Sequence[Shard]) -> int:
    return sum(len(np.load(shard.vectors, mmap_mode="r")) for shard in shards)


def _against_blocks(outcome: Outcome, folder: Path, metric: str, block_rows: int) -> None:
    """The union of masks that know nothing of each other, on the scale of the one of all documents."""
    shards = shards_in(folder)
    vectors, quality_N = in_one(shards)
    settings = {"diversity": metric, "ratio": RATIO, "lamb": LAMB}
    found = select_over_shards(shards, folder / "selected", workers=2, **settings)
    scale, bound = found.normalisation, found.certificate.bound
    assert bound is not None
    settings["normalisation_constants"] = scale
    in_order = np.arange(len(vectors))
    cuts = {"the shards": in_order, "random": np.random.default_rng(0).permutation(in_order)}
    values = {"all shards": _value(vectors, quality_N, np.array(found.column("mask")), metric, scale)}
    for name, order in cuts.items():
        mask_N = np.zeros(len(vectors), bool)
        for block in np.array_split(order, len(vectors) // block_rows):
            rows = np.sort(block)
            mask_N[rows] = select_documents(vectors.chosen(rows), quality_N[rows], **settings).mask
        values[f"blocks: {name}"] = _value(vectors, quality_N, mask_N, metric, scale)
    reference = values["all shards"]
    for name, value in values.items():
        row = {"method": f"{metric}, union of {name}", "objective": value}
        row |= {"attainment": attainment(value, found.objective.random, reference)}
        outcome.rows.append(row | {"gap": (bound - value) / (bound - found.objective.random)})
    best = max(value for name, value in values.items() if name != "all shards")
    outcome.claims.append(
        at_least(
            f"{metric}: over shards above the better blocks, share of the distance from random",
            0.0,
            1 - attainment(best, found.objective.random, reference),
            ".5f",
        )
    )


def _value(
    vectors: ShardedVectors,
    quality_N: NDArray[np.float64],
    mask_N: NDArray[np.bool_],
    metric: str,
    scale: dict[str, tuple[float, float]],
) -> float:
    """The objective of a mask on a scale."""
    held = Given.of(vectors.chosen(np.flatnonzero(mask_N)), quality_N[mask_N])
    raw = {
        "quality": held.quality["quality"] / held.count,
        metric: METRICS.make(metric).value(held.moments(needs_second=True)),
    }
    quality, diversity = (
        (raw[name] - scale[name][0]) / (scale[name][1] - scale[name][0]) for name in ("quality", metric)
    )
    return LAMB * quality + (1 - LAMB) * diversity
