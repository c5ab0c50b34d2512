"""Every stage of a release at growing numbers of documents, each in a process of its own: processor seconds and memory.

The chain is the real one, by the stages' own defaults where `benchmarks.stages_work.configuration` does not say
otherwise. What a stage takes for a thousand documents is its fixed part: imports and what does not grow. Exponents are
of what is beyond that. What was measured by the same code is kept in the folder until all is, so that a run that was
stopped goes on. With `--steps` only these and what they are made from are measured; the other rows stay as the results
have them, each with the commit that it was measured at.
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from benchmarks.harness import Context, Outcome, Row, at_most, code_version
from benchmarks.stages_data import CRAWL, make_crawl, part_of
from benchmarks.stages_work import COMMANDS, STEPS, configuration, with_needed

TITLE = "Every stage, 1 000 to 3 000 000 documents"
QUESTION = "Is the memory of every stage flat, and does its time grow as the documents do?"
LONG = True
FEW, SIZES = 1_000, (100_000, 1_000_000, 3_000_000)
MOST = {"pool, near_duplicates": 100_000}
"""The most documents that a step is measured with: it holds every text's signature in memory, and the others go without."""
GROWTH, EXPONENT = 1.2, 1.1
LEAST_SECONDS = 1.0
"""Beyond the fixed part; growth of less is noise."""
ONCE = (
    "What may not be concluded. Each row is one run, on a machine shared with others: from one whole run to the next the "
    "largest exponent of `select` over shards went from 1.42 to 0.95, that of `score` from 0.66 to 1.28, and the growth "
    "of its memory from 1.13 to 1.63. A stage's fixed part is measured at a thousand documents, "
    "and may by chance exceed what a hundred thousand take."
)


def run(context: Context) -> Outcome:
    """Each size in a folder of its own."""
    steps = with_needed(context.steps) if context.steps else [*STEPS, *COMMANDS]
    outcome = Outcome()
    for documents in (FEW, *SIZES):
        outcome.rows += measured(context, documents, steps)
    if context.steps:
        earlier = json.loads((context.results / "stages.json").read_text())
        outcome.rows = merged(earlier, outcome.rows)
    outcome.notes.append(ONCE)
    for step in STEPS | COMMANDS:
        if rows := [row for row in outcome.rows if row["method"] == step]:
            _tell(outcome, step, rows)
    shutil.rmtree(context.folder / "stages")
    return outcome


def merged(earlier: dict[str, Any], rows: list[Row]) -> list[Row]:
    """Rows of earlier results, those of the same step and size replaced, each with its commit; by size and step."""
    kept = {(row["documents"], row["method"]): {"commit": earlier["code"]} | row for row in earlier["rows"]}
    kept |= {(row["documents"], row["method"]): row for row in rows}
    order = [*STEPS, *COMMANDS]
    return [kept[place] for place in sorted(kept, key=lambda place: (place[0], order.index(place[1])))]


def measured(context: Context, documents: int, steps: list[str]) -> list[Row]:
    """Some steps, in order, at one size, and what each took."""
    size = documents if documents == FEW else context.size(documents)
    folder, code = context.folder / f"stages/{size}", code_version()
    kept = folder / "measured.json"
    if not kept.exists() or json.loads(kept.read_text())["code"] != code:
        shutil.rmtree(folder, ignore_errors=True)
        _prepare(context, folder, size)
        kept.write_text(json.dumps({"code": code, "rows": {}}))
    rows: dict[str, Row] = json.loads(kept.read_text())["rows"]
    for step in steps:
        if step not in rows and documents <= MOST.get(step, documents):
            rows[step] = _row(step, size, worked(folder, step)) | {"commit": code}
            kept.write_text(json.dumps({"code": code, "rows": rows}))
            print(json.dumps(rows[step]), flush=True)
    shutil.rmtree(folder / "record", ignore_errors=True)
    return list(rows.values())


def _prepare(context: Context, folder: Path, size: int) -> None:
    """The crawl, linked from the largest that is made, and its configuration."""
    seed = context.seeds[0]
    if size == FEW:
        make_crawl(folder, context.base, size, seed)
    else:
        whole = context.folder / "stages/whole"
        make_crawl(whole, context.base, context.size(SIZES[-1]), seed)
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
    """What each size adds to the one before, and the claims: memory at most documents against few, the largest exponent."""
    fixed, *grown = rows
    for row in grown:
        row.pop("bytes a document", None)
        row.pop("exponent", None)
    for less, more in itertools.pairwise(grown):
        added = (more["anonymous MiB"] - less["anonymous MiB"]) * 2**20
        more["bytes a document"] = round(added / (more["documents"] - less["documents"]), 1)
        beyond = [row["processor seconds"] - fixed["processor seconds"] for row in (less, more)]
        if min(beyond) > LEAST_SECONDS:
            more["exponent"] = math.log(beyond[1] / beyond[0]) / math.log(
                more["documents"] / less["documents"]
            )
    if len(grown) > 1:
        few, many = grown[0], grown[-1]
        told = f"{step}: memory at {many['documents']:,} documents, as a multiple of that at {few['documents']:,}"
        outcome.claims.append(at_most(told, GROWTH, many["anonymous MiB"] / few["anonymous MiB"]))
    if exponents := [row["exponent"] for row in grown if "exponent" in row]:
        outcome.claims.append(
            at_most(
                f"{step}: largest exponent of the time between two sizes", EXPONENT, max(exponents), ".2f"
            )
        )
