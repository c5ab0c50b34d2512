"""Every stage of a release at growing numbers of documents, each in a process of its own: processor seconds and memory.

The chain is the real one, by the stages' own defaults where `benchmarks.stages_work.configuration` does not say
otherwise, and gone through several times. Time is `fixed + seconds n^exponent` through the medians of three sizes: imports
and what does not grow are the fixed part. What was measured by the same code is kept in the folder until all is, so that a
run that was stopped goes on. With `--steps` only these and what they are made from are measured; the other rows stay as the
results have them, each with the commit that it was measured at.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
import yaml
from scipy.optimize import brentq

from benchmarks.harness import Context, Outcome, Row, at_most, code_version
from benchmarks.stages_data import CRAWL, make_crawl, part_of
from benchmarks.stages_work import COMMANDS, STEPS, configuration, with_needed

TITLE = "Every stage, 100 000 to 3 000 000 documents"
QUESTION = "Is the memory of every stage flat, and does its time grow as the documents do?"
LONG = True
SIZES, RUNS = (100_000, 1_000_000, 3_000_000), 3
MOST = {"pool, near_duplicates": 100_000}
"""The most documents that a step is measured with: it holds every text's signature in memory, and the others go without."""
GROWTH, EXPONENT = 1.2, 1.1
LEAST_SECONDS = 1.0
"""Between two sizes; growth of less is noise, and has no exponent."""
STEEPEST = 8.0
"""No exponent is looked for beyond this."""
SHARED = (
    f"What may not be concluded. Medians of {RUNS} runs, whatever else the machine did. An exponent is that "
    "of what grows, as three sizes show it; of a stage that hardly grows it says little."
)


def run(context: Context) -> Outcome:
    """Each size in a folder of its own."""
    steps = with_needed(context.steps) if context.steps else [*STEPS, *COMMANDS]
    outcome = Outcome()
    for turn in range(RUNS):
        for documents in map(context.size, SIZES):
            outcome.rows += measured(context, documents, turn, steps)
    if context.steps:
        earlier = json.loads((context.results / "stages.json").read_text())
        outcome.rows = merged(earlier, outcome.rows)
    outcome.notes.append(SHARED)
    for step in STEPS | COMMANDS:
        if rows := [row for row in outcome.rows if row["method"] == step]:
            _tell(outcome, step, rows)
    shutil.rmtree(context.folder / "stages")
    return outcome


def merged(earlier: dict[str, Any], rows: list[Row]) -> list[Row]:
    """Rows of earlier results, those of the same step and size replaced, each with its commit; by size and step."""
    measured_now = {(row["documents"], row["method"]) for row in rows}
    kept = [{"commit": earlier["code"]} | row for row in earlier["rows"]]
    kept = [row for row in kept if (row["documents"], row["method"]) not in measured_now]
    order = [*STEPS, *COMMANDS]
    return sorted(kept + rows, key=lambda row: (row["documents"], order.index(row["method"])))


def measured(context: Context, size: int, turn: int, steps: list[str]) -> list[Row]:
    """Some steps, in order, at one size in a record of its own, and what each took.

    Raises:
        RuntimeError: a step failed, or made something else than in an earlier turn.
    """
    folder, code = context.folder / f"stages/{size}", code_version()
    kept = folder / "measured.json"
    if not kept.exists() or json.loads(kept.read_text())["code"] != code:
        shutil.rmtree(folder, ignore_errors=True)
        _prepare(context, folder, size)
        kept.write_text(json.dumps({"code": code, "turns": []}))
    turns: list[dict[str, Row]] = json.loads(kept.read_text())["turns"]
    turns += [{} for _ in range(turn + 1 - len(turns))]
    rows = turns[turn]
    for step in steps:
        if step not in rows and size <= MOST.get(step, size):
            rows[step] = _row(step, size, worked(folder, step)) | {"commit": code}
            if rows[step]["mask"] != turns[0][step]["mask"]:
                raise RuntimeError(f"{step}, {size} documents: made something else than in the first turn")
            kept.write_text(json.dumps({"code": code, "turns": turns}))
            print(json.dumps(rows[step]), flush=True)
    shutil.rmtree(folder / "record", ignore_errors=True)
    return [rows[step] for step in steps if step in rows]


def _prepare(context: Context, folder: Path, size: int) -> None:
    """The crawl, linked from the largest that is made, and its configuration."""
    whole = context.folder / "stages/whole"
    make_crawl(whole, context.base, context.size(SIZES[-1]), context.seeds[0])
    part_of(whole, folder, size)
    (folder / "chain.yaml").write_text(yaml.safe_dump(configuration(folder)))
    with pq.ParquetFile(folder / f"crawls/{CRAWL}/0000.parquet") as first:
        (folder / "asked").write_text(next(first.iter_batches(1, columns=["id"])).column(0)[0].as_py())


def _row(step: str, size: int, told: dict[str, Any]) -> Row:
    return {
        "method": step,
        "documents": size,
        "rows": told.get("rows"),
        "processor seconds": told["cpu_seconds"],
        "wall seconds": told["wall_seconds"],
        "anonymous MiB": told["anonymous_bytes"] / 2**20,
        "mask": told.get("digest"),
    }


def worked(folder: Path, step: str) -> dict[str, Any]:
    """One step in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.stages_work", str(folder), step]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{step}: {done.stderr[-2_000:]}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def _tell(outcome: Outcome, step: str, rows: list[Row]) -> None:
    """What each size adds to the one before, and the claims: memory at most documents against few, and the exponent."""
    sizes = sorted({row["documents"] for row in rows})
    seconds = [_median(rows, size, "processor seconds") for size in sizes]
    memory = [_median(rows, size, "anonymous MiB") for size in sizes]
    for row in rows:
        row.pop("bytes a document", None)
        if place := sizes.index(row["documents"]):
            added = (memory[place] - memory[place - 1]) * 2**20
            row["bytes a document"] = round(added / (sizes[place] - sizes[place - 1]), 1)
    if len(sizes) > 1:
        told = f"{step}: memory at {sizes[-1]:,} documents, as a multiple of that at {sizes[0]:,}"
        outcome.claims.append(at_most(told, GROWTH, memory[-1] / memory[0]))
    if len(sizes) == len(SIZES) and (exponent := exponent_of(sizes, seconds)) is not None:
        outcome.claims.append(at_most(f"{step}: exponent of the time", EXPONENT, exponent, ".2f"))


def _median(rows: list[Row], size: int, column: str) -> float:
    return median(float(row[column]) for row in rows if row["documents"] == size)


def exponent_of(sizes: list[int], seconds: list[float]) -> float | None:
    """The power in ``fixed + factor n^power`` through three points; none where the time hardly grows.

    Args:
        sizes: Ascending.
        seconds: Of each.
    """
    few, some, many = (math.log(size) for size in sizes)
    first, second = seconds[1] - seconds[0], seconds[2] - seconds[1]
    if min(first, second) < LEAST_SECONDS:
        return None

    def surplus(power: float) -> float:
        return math.expm1(power * (many - some)) / -math.expm1(power * (few - some)) - second / first

    flattest = 1 / 1024
    return 0.0 if surplus(flattest) >= 0 else float(brentq(surplus, flattest, STEEPEST))
