"""One ingestion in a process of its own: ours or the peer's. Run as `python -m benchmarks.ingest_work ours FROM TO`.

Imports are part of the work, so this module has none that either side does not need.
"""

import argparse
import json
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

LANGUAGE, MIN_CHARS, MAX_CHARS = "en", 200, 50_000


def ours(source: Path, target: Path) -> None:
    from datamask_pipeline.families import SOURCES
    from datamask_pipeline.schema import FINEWEB
    from datamask_pipeline.stages import ingest
    from datamask_pipeline.storage import Store

    pa.set_cpu_count(1)
    options = {"root": str(source), "crawl": "all", "optional_columns": FINEWEB.names[2:]}
    config = ingest.IngestConfig(languages=(LANGUAGE,), min_chars=MIN_CHARS, max_chars=MAX_CHARS)
    ingest.run(config, store=Store(target), crawl="all", source=SOURCES.make("local", options))


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


def main() -> None:
    """Do it, and print processor seconds, imports included, and peak memory in MiB."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=["ours", "peer"])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    begun = time.process_time()
    {"ours": ours, "peer": peer}[options.which](options.source, options.target)
    seconds = time.process_time() - begun
    # getrusage would report the parent's peak, which a process inherits over fork and exec.
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(json.dumps({"seconds": seconds, "peak_mib": peak}))


if __name__ == "__main__":
    main()
