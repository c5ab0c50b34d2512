"""Ingestion against datatrove's reader and writer at the same work. Run as `python -m benchmarks.ingest DIR`.

The work: read Parquet, keep id, filter by language and length, write Parquet (zstd at Arrow's own level). One
process and one core each, in alternating order; documents per second of processor time with imports, so that a
busy machine does not decide. Ours also hashes every text, digests every column and settles repeated ids, which
the peer does not. Three inputs: one file of text, id and language; the same four times over; the folder as it
is, with every column.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

LANGUAGE, MIN_CHARS, MAX_CHARS = "en", 200, 50_000


def ours(source: Path, target: Path) -> None:
    from datamask_pipeline.schema import FINEWEB
    from datamask_pipeline.sources import make_source
    from datamask_pipeline.stages import ingest
    from datamask_pipeline.storage import Store

    pa.set_cpu_count(1)
    options = {"root": str(source), "crawl": "all", "optional_columns": FINEWEB.names[2:]}
    config = ingest.IngestConfig(languages=(LANGUAGE,), min_chars=MIN_CHARS, max_chars=MAX_CHARS)
    ingest.run(config, store=Store(target), crawl="all", source=make_source("local", options))


def peer(source: Path, target: Path) -> None:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.filters import LambdaFilter
    from datatrove.pipeline.readers import ParquetReader
    from datatrove.pipeline.writers import ParquetWriter

    pa.set_cpu_count(1)

    def wanted(document: object) -> bool:
        is_language = document.metadata.get("language") == LANGUAGE  # type: ignore[attr-defined]
        return is_language and MIN_CHARS <= len(document.text) <= MAX_CHARS  # type: ignore[attr-defined]

    steps = [
        ParquetReader(str(source), glob_pattern="**/*.parquet", doc_progress=False),
        LambdaFilter(wanted),
        ParquetWriter(
            str(target / "out"), compression="zstd", expand_metadata=True, schema=columns_of(source)
        ),
    ]
    LocalPipelineExecutor(steps, tasks=1, workers=1, logging_dir=str(target / "logs")).run()


def columns_of(source: Path) -> pa.Schema:
    """The peer is told its columns: it would take their types from the first row, nulls and all."""
    return pq.read_schema(min(source.rglob("*.parquet")))


def written_bytes(target: Path) -> int:
    folder = target / "out" if (target / "out").exists() else target / "ingest"
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def ids(target: Path) -> set[str]:
    folder = target / "out" if (target / "out").exists() else target / "ingest"
    return {
        name
        for path in folder.rglob("*.parquet")
        for name in pq.read_table(path, columns=["id"]).column(0).to_pylist()
    }


def measure(which: str, source: Path, target: Path) -> dict[str, float]:
    """One run in a process of its own: processor seconds of the work, and peak memory in MiB."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.ingest",
        str(source),
        "--inside",
        which,
        "--target",
        str(target),
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def inside(which: str, source: Path, target: Path) -> None:
    begun = time.process_time()
    {"ours": ours, "peer": peer}[which](source, target)
    seconds = time.process_time() - begun
    # getrusage would report the parent's peak, which a process inherits over fork and exec.
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(json.dumps({"seconds": seconds, "peak_mib": peak}))


def joined(source: Path, target: Path, copies: int) -> int:
    """All rows of the folder in one file, ``copies`` times over with fresh ids; returns the rows."""
    columns = ["text", "id", "language"]
    table = pa.concat_tables(
        pq.read_table(path, columns=columns) for path in sorted(source.rglob("*.parquet"))
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(target, table.schema, compression="zstd") as writer:
        for copy in range(copies):
            fresh = pa.array([f"{copy} {name}" for name in table.column("id").to_pylist()])
            writer.write_table(table.set_column(1, "id", fresh), row_group_size=1_000)
    return table.num_rows * copies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--inside", choices=["ours", "peer"])
    parser.add_argument("--target", type=Path)
    options = parser.parse_args()
    if options.inside:
        inside(options.inside, options.source, options.target)
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        rows = joined(options.source, root / "one" / "0.parquet", 1)
        joined(options.source, root / "four" / "0.parquet", 4)
        inputs = {
            "one_file": (root / "one", rows),
            "four_times": (root / "four", 4 * rows),
            "folder": (options.source, rows),
        }
        report = {name: compare(*item, root / "out", options.repeats) for name, item in inputs.items()}
    # What one more document costs, start-up aside.
    report["marginal_documents_per_cpu_second"] = {
        which: 3
        * rows
        / (report["four_times"]["cpu_seconds"][which] - report["one_file"]["cpu_seconds"][which])
        for which in ("ours", "peer")
    }
    print(json.dumps(report, indent=1))


def compare(source: Path, rows: int, target: Path, repeats: int) -> dict[str, Any]:
    """Both at one input: medians of processor seconds, and whether the same rows come out."""
    runs: dict[str, list[dict[str, float]]] = {"ours": [], "peer": []}
    found: dict[str, set[str]] = {}
    sizes: dict[str, int] = {}
    for turn in range(repeats):
        for which in sorted(runs, reverse=turn % 2 == 1):
            shutil.rmtree(target, ignore_errors=True)
            runs[which].append(measure(which, source, target))
            found[which], sizes[which] = ids(target), written_bytes(target)
    seconds = {which: statistics.median(run["seconds"] for run in made) for which, made in runs.items()}
    return {
        "documents": rows,
        "cpu_seconds": seconds,
        "documents_per_cpu_second": {which: rows / value for which, value in seconds.items()},
        "ratio": seconds["peer"] / seconds["ours"],
        "same_rows": found["ours"] == found["peer"],
        "rows_kept": len(found["ours"]),
        "bytes_written": sizes,
        "peak_mib": {
            which: statistics.median(run["peak_mib"] for run in made) for which, made in runs.items()
        },
    }


if __name__ == "__main__":
    main()
