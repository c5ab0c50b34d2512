"""A subset joined and published, against a plain copy of the same rows by pyarrow. Knows no model: the mask is given.

The work: a record of made documents, all selected: a million of 2 KB, and ten million whose text is a number. `join` is
stage `materialise`, its digests and indexes included, `release` is `datamask release`; `copy` reads the subset's files and
writes them again, with the same compression, by pyarrow alone. Each in a process of its own on two cores, in alternating
order; the speed is by the clock, the median of several runs, so the machine has to be idle.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.harness import Context, Outcome, at_least, at_most

TITLE = "A subset joined and published"
QUESTION = (
    "Is a subset joined, and published, at half the speed of a plain copy, in memory that does not grow?"
)
LONG = True
REPEATS = 3
SIZES = {"2 KB": 1_000_000, "no text": 10_000_000}
MEMORY_MIB = 2_000
WORK = ("copy", "join", "release", "release, seeded")


def run(context: Context) -> Outcome:
    """Seconds and peak of anonymous memory of each."""
    outcome = Outcome()
    for text, documents in SIZES.items():
        _measure(context, outcome, text, context.size(documents))
    return outcome


def _measure(context: Context, outcome: Outcome, text: str, documents: int) -> None:
    with tempfile.TemporaryDirectory(dir=context.folder) as folder:
        measured("make" if text == "2 KB" else "make without text", Path(folder), documents)
        runs: dict[str, list[dict[str, float]]] = {which: [] for which in WORK}
        for turn in range(REPEATS):
            for which in WORK if turn % 2 == 0 else reversed(WORK):
                runs[which].append(measured(which, Path(folder), documents))
    seconds = {which: median(each["wall_seconds"] for each in made) for which, made in runs.items()}
    peaks = {which: max(each["peak_mib"] for each in made) for which, made in runs.items()}
    for which in WORK:
        outcome.rows.append(
            {
                "method": which,
                "text": text,
                "documents": documents,
                "processor seconds": median(each["seconds"] for each in runs[which]),
                "wall seconds": seconds[which],
                "anonymous MiB": peaks[which],
            }
        )
    for which in WORK[1:]:
        told = f"{which}, {documents:,} documents of {text}"
        outcome.claims += [
            at_least(f"{told}: speed, as a share of a copy's", 0.5, seconds["copy"] / seconds[which]),
            at_most(f"{told}: anonymous memory, MiB", MEMORY_MIB, peaks[which]),
        ]


def measured(which: str, folder: Path, documents: int) -> dict[str, float]:
    """One piece of work in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.release_work", which, str(folder), str(documents)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result
