"""Ingestion against datatrove's reader and writer at the same work. Knows no engine and no model.

The work: read Parquet, keep id, filter by language and length, write Parquet (zstd at Arrow's own level). One
process and one core each, in alternating order; documents per second of processor time with imports, so that a
busy machine does not decide. Ours also hashes every text, digests every column and settles repeated ids, which
the peer does not. Three inputs: one file of text, id and language; the same four times over; the folder as it
is, with every column. Ours puts texts with NUL bytes and the like into quarantine, with a reason; the peer keeps them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Context, Outcome, at_least, at_most

TITLE = "Ingestion, one core"
QUESTION = "How many documents are read, filtered and written per second of one core, against datatrove?"
LONG = False
REPEATS = 3
FEWEST_ROWS = 20_000
"""Documents of the single file at least; fewer are repeated under fresh ids."""
COLUMNS = ("text", "id", "language")


def run(context: Context) -> Outcome:
    """Both on each input; the folder alone is not multiplied, so on few documents imports decide there."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory(dir=context.folder) as folder:
        root = Path(folder)
        copies = -(-context.size(FEWEST_ROWS) // num_rows(context.documents))
        inputs = {
            "one file": joined(context.documents, root / "one", copies),
            "four times": joined(context.documents, root / "four", 4 * copies),
            "folder": context.documents,
        }
        for name, source in inputs.items():
            compare(outcome, name, source, root / "out")
    peaks = {row["method"]: row["peak MiB"] for row in outcome.rows}
    growth = peaks["four times: datamask"] / peaks["one file: datamask"]
    outcome.claims.append(at_most("peak memory at four times the rows, as a multiple", 1.2, growth))
    return outcome


def num_rows(folder: Path) -> int:
    """Of all files."""
    return sum(pq.read_metadata(path).num_rows for path in folder.rglob("*.parquet"))


def joined(source: Path, target: Path, copies: int) -> Path:
    """A folder with all rows in one file, some times over with fresh ids."""
    paths = sorted(source.rglob("*.parquet"))
    table = pa.concat_tables(pq.read_table(path, columns=list(COLUMNS)) for path in paths)
    target.mkdir(parents=True)
    with pq.ParquetWriter(target / "0.parquet", table.schema, compression="zstd") as writer:
        for copy in range(copies):
            fresh = pa.array([f"{copy} {name}" for name in table.column("id").to_pylist()])
            place = table.schema.get_field_index("id")
            writer.write_table(table.set_column(place, "id", fresh), row_group_size=1_000)
    return target


def compare(outcome: Outcome, name: str, source: Path, target: Path) -> None:
    """Both at one input: medians of processor seconds, and whether the same rows come out."""
    runs: dict[str, list[dict[str, float]]] = {"ours": [], "peer": []}
    found: dict[str, set[str]] = {}
    rejected: set[str] = set()
    for turn in range(REPEATS):
        for which in sorted(runs, reverse=turn % 2 == 1):
            shutil.rmtree(target, ignore_errors=True)
            runs[which].append(measured(which, source, target))
            found[which] = ids(target / ("ingest" if which == "ours" else "out"))
            if which == "ours":
                rejected = ids(target / "rejected")
    unexplained = (found["ours"] ^ found["peer"]) - rejected
    rows = num_rows(source)
    seconds = {which: median(run["seconds"] for run in made) for which, made in runs.items()}
    for which, method in (("ours", "datamask"), ("peer", "datatrove")):
        outcome.rows.append(
            {
                "method": f"{name}: {method}",
                "documents": rows,
                "kept": len(found[which]),
                "processor seconds": seconds[which],
                "documents per second": rows / seconds[which],
                "peak MiB": median(run["peak_mib"] for run in runs[which]),
            }
        )
    outcome.claims += [
        at_least(f"{name}: documents per second, against datatrove", 2.0, seconds["peer"] / seconds["ours"]),
        at_most(f"{name}: rows out of one alone that no quarantine names", 0, len(unexplained)),
    ]


def measured(which: str, source: Path, target: Path) -> dict[str, float]:
    """One run in a process of its own: processor seconds and peak memory."""
    command = [sys.executable, "-m", "benchmarks.ingest_work", which, str(source), str(target)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def ids(folder: Path) -> set[str]:
    """Of the rows in a folder's Parquet files."""
    return {
        name
        for path in folder.rglob("*.parquet")
        for name in pq.read_table(path, columns=["id"]).column(0).to_pylist()
    }
