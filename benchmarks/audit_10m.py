"""Questions put to a record of ten million documents, against the same at 200 000. Knows no model: the masks are given.

The record is made up, straight from its tables: four crawls; a release of three of them and one of all four, each with two
arms, of which a fifth of the documents are chosen at random; and a subset. Each question is a command in a process of its
own; the interpreter's start and its imports are left out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.audit_work import QUESTIONS
from benchmarks.harness import Context, Outcome, at_most

TITLE = "Questions put to a record of ten million documents"
QUESTION = (
    "Do why, impact and diff answer within seconds at ten million documents, in memory that does not grow?"
)
LONG = True
FEW, MANY = 200_000, 10_000_000
SECONDS = {"why": 1.0, "impact": 5.0, "diff": 5.0}
MORE_MIB = 256


def run(context: Context) -> Outcome:
    """Seconds and peak of anonymous memory of each question, at both sizes."""
    outcome, peaks = Outcome(), {}
    with tempfile.TemporaryDirectory(dir=context.folder) as folder:
        for documents in map(context.size, (FEW, MANY)):
            record = Path(folder) / str(documents)
            measured("make", record, documents)
            for question in QUESTIONS:
                found = measured(question, record, documents)
                peaks[question, documents] = found["peak_mib"]
                outcome.rows.append(
                    {
                        "question": question,
                        "documents": documents,
                        "processor seconds": found["seconds"],
                        "wall seconds": found["wall_seconds"],
                        "anonymous MiB": found["peak_mib"],
                    }
                )
    few, many = map(context.size, (FEW, MANY))
    for row in outcome.rows:
        question = row["question"]
        if row["documents"] == many:
            limit = SECONDS[question.split()[0]]
            more = peaks[question, many] - peaks[question, few]
            outcome.claims += [
                at_most(f"{question}: processor seconds", limit, row["processor seconds"]),
                at_most(f"{question}: anonymous MiB more than at {few:,}", MORE_MIB, more),
            ]
    return outcome


def measured(which: str, record: Path, documents: int) -> dict[str, float]:
    """One piece of work in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.audit_work", which, str(record), str(documents)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result
