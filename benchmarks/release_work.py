"""One piece of the work of `benchmarks.release`, in a process of its own; prints its seconds and its peak of memory."""

import argparse
import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datamask_pipeline import schema
from datamask_pipeline.storage import ROW_GROUP_ROWS, Ref, Store, require

CRAWL, ARM, KEY = "made", "all", "first/all"
WORDS, CHARACTERS = 20_000, 2_000
NOT_LEARNT = {
    "blocks": [{"certificate": {"bound": None, "gap": None, "method": "no bound: the mask was given"}}]
}


def make(folder: Path, documents: int, characters: int = CHARACTERS) -> None:
    """A record up to a selection of all documents; vectors and models are left out, as nothing here reads them."""
    from datamask_pipeline.families import SOURCES
    from datamask_pipeline.stages import gather, ingest, pool
    from datamask_pipeline.stages.score import STAGE as SCORE

    store, source = Store(folder / "record"), folder / "source" / CRAWL
    source.mkdir(parents=True)
    with pq.ParquetWriter(source / "0.parquet", schema.FINEWEB) as writer:
        for batch in made_documents(documents, characters):
            writer.write_batch(batch)
    options = {"root": str(source.parent)}
    found, _ = ingest.run(
        ingest.IngestConfig(), store=store, crawl=CRAWL, source=SOURCES.make("local", options)
    )
    candidates = pool.run(
        pool.PoolConfig(validation_share=0), store=store, release="first", documents={CRAWL: found}
    )
    rows = store.read_table(found, ["id", "content_hash"])
    embedded = commit(store, "embed", CRAWL, rows, schema.EMBEDDINGS, {"model": "none", "revision": "none"})
    quality = np.random.default_rng(0).random(len(rows))
    about = {"model": "made", "revision": "1", "scale_min": 0.0, "scale_max": 1.0}
    columns = {
        name: pa.nulls(len(rows), field.type)
        for name, field in zip(schema.SCORES.names, schema.SCORES, strict=True)
    }
    columns |= {"id": rows["id"], "score": pa.array(quality), "scorer": pa.array(["made"] * len(rows))}
    scored = commit(store, SCORE, CRAWL, pa.table(columns), schema.SCORES, {"scorers": {"made": about}})
    index = gather.run(
        gather.GatherConfig(),
        store=store,
        release="first",
        candidates=candidates,
        embeddings={CRAWL: embedded},
        scores={CRAWL: scored},
    )
    table = store.read_table(index, ["position", "crawl", "id"])
    for field in schema.SELECTION:
        if field.name not in table.column_names:
            value = True if field.name == "selected" else "given" if field.name == "reason" else 0.5
            table = table.append_column(field.name, pa.array([value] * len(table), field.type))
    totals = {"objective": 0.0, "objective_random": 0.0}
    settings = {"policy": "given", "diversity": "none", "lamb": 1.0, "ratio": 1.0, "seed": 0}
    settings |= {"scorers": {}, "score_normalisation": "none"}
    counts = {"rows_in": len(table), "kept": len(table), "dropped_no_score": 0}
    commit(
        store, "select", KEY, table, schema.SELECTION, NOT_LEARNT | totals, settings=settings, counts=counts
    )
    join(folder)


def commit(
    store: Store,
    stage: str,
    key: str,
    table: pa.Table,
    columns: pa.Schema,
    metadata: dict[str, object],
    *,
    settings: dict[str, object] | None = None,
    counts: dict[str, int] | None = None,
) -> Ref:
    """One artefact of one part."""
    builder = store.begin(stage, key, version="made", config=settings or {}, inputs={})
    part = builder.write_part(
        "0", table.select(columns.names).cast(columns).to_batches(ROW_GROUP_ROWS), columns
    )
    return builder.commit([part], metadata=metadata, counts=counts)


def made_documents(documents: int, characters: int) -> Iterator[pa.RecordBatch]:
    """Documents of as many characters, their words by Zipf's law: they compress about as web text does.

    Of none, a document's text is its number, as equal texts would be collapsed.
    """
    draws = np.random.default_rng(0)
    letters = np.array([*"abcdefghijklmnopqrstuvwxyz"])
    words = np.array(["".join(draws.choice(letters, draws.integers(2, 10))) for _ in range(WORDS)])
    shares = 1 / np.arange(1, WORDS + 1)
    for first in range(0, documents, ROW_GROUP_ROWS):
        numbers = range(first, min(first + ROW_GROUP_ROWS, documents))
        drawn = draws.choice(words, size=(len(numbers), characters // 5), p=shares / shares.sum())
        texts = [" ".join(row)[:characters] for row in drawn] if characters else list(map(str, numbers))
        columns: dict[str, object] = {
            "text": texts,
            "id": [f"<urn:uuid:{draws.bytes(16).hex()}>" for _ in numbers],
            "url": [f"https://site{number % 1_000}.example/{number}" for number in numbers],
            "token_count": [CHARACTERS // 5 for _ in numbers],
        }
        constant = {"dump": CRAWL, "date": "2024-01-01", "file_path": "made.warc", "language": "en"}
        columns |= {name: [value] * len(numbers) for name, value in constant.items()}
        columns["language_score"] = [0.9] * len(numbers)
        yield pa.record_batch(
            [pa.array(columns[f.name], f.type) for f in schema.FINEWEB], schema=schema.FINEWEB
        )


def copy(folder: Path) -> None:
    """The subset's files, read and written again."""
    store = Store(folder / "record")
    subset = require(store, "materialise", KEY)
    with pq.ParquetWriter(
        folder / "copy.parquet", pq.read_schema(store.part_paths(subset)[0]), compression="zstd"
    ) as writer:
        for batch in store.iter_batches(subset):
            writer.write_batch(batch)


def join(folder: Path) -> None:
    """The subset, made anew."""
    from datamask_pipeline.stages import materialise

    store = Store(folder / "record")
    shutil.rmtree(folder / "record" / "materialise", ignore_errors=True)
    materialise.run(
        materialise.MaterialiseConfig(),
        store=store,
        release="first",
        arm=ARM,
        documents={CRAWL: require(store, "ingest", CRAWL)},
        candidates=require(store, "pool", "first"),
        index=require(store, "gather", "first"),
        selection=require(store, "select", KEY),
    )


def release(folder: Path, seed: int | None = None) -> None:
    """The data set."""
    from datamask_pipeline.publish.config import PublishConfig
    from datamask_pipeline.publish.dataset import publish

    shutil.rmtree(folder / "mask", ignore_errors=True)
    config = PublishConfig(licence="odc-by", source_licence="odc-by", seed=seed)
    publish(Store(folder / "record"), "first", ARM, str(folder / "mask"), config)


def anonymous_mib() -> float:
    """Memory of this process that is no file's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024


def main() -> None:
    """Do it, and print processor and wall seconds, imports included, and the peak of anonymous memory in MiB."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "which", choices=["make", "make without text", "copy", "join", "release", "release, seeded"]
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("documents", type=int)
    options = parser.parse_args()
    pa.set_cpu_count(2)
    peak, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            peak[0] = max(peak[0], anonymous_mib())

    threading.Thread(target=watch, daemon=True).start()
    begun, wall = time.process_time(), time.perf_counter()
    if options.which.startswith("make"):
        make(options.folder, options.documents, CHARACTERS if options.which == "make" else 0)
    elif options.which == "copy":
        copy(options.folder)
    elif options.which == "join":
        join(options.folder)
    else:
        release(options.folder, seed=0 if options.which.endswith("seeded") else None)
    result = {"seconds": time.process_time() - begun, "wall_seconds": time.perf_counter() - wall}
    done.set()
    print(json.dumps(result | {"peak_mib": peak[0]}))


if __name__ == "__main__":
    main()
