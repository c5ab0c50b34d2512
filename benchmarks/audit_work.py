"""One piece of the work of `benchmarks.audit_10m`, in a process of its own; prints its seconds and its peak of memory."""

import argparse
import contextlib
import io
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from benchmarks.release_work import anonymous_mib
from datamask_pipeline import schema
from datamask_pipeline.arrays import equal_strings
from datamask_pipeline.storage import Ref, Store

CRAWLS = ("CC-0", "CC-1", "CC-2", "CC-3")
RELEASES = {"first": CRAWLS[:3], "second": CRAWLS}
ARMS = {"datamask": "{} threshold", "top": "quality {} threshold"}
BATCH, DOMAINS = 1 << 16, 5_000
QUESTIONS = (
    "why",
    *(f"impact of a {about}" for about in ("document", "domain", "crawl", "scorer")),
    *(f"diff by {about}" for about in ("marginals", "quality")),
)
DOCUMENTS = pa.schema(
    [schema.FINEWEB.field("id"), *schema.PROVENANCE]
    + [schema.FINEWEB.field(name) for name in ("url", "date", "language", "token_count")]
)
INDEX = pa.schema([*schema.RELEASE_INDEX, schema.score_column("rules")])
Columns = Callable[[int, int], Mapping[str, pa.Array]]


def hexadecimal(seed: int, count: int, num_bytes: int) -> pa.StringArray:
    """Random strings, the same for the same seed."""
    return equal_strings(np.random.default_rng(seed).bytes(num_bytes * count).hex().encode(), 2 * num_bytes)


def same(value: str, count: int) -> pa.StringArray:
    return equal_strings(value.encode() * count, len(value))


class Made:
    """The record's random columns: of each crawl, as many documents."""

    def __init__(self, store: Store, documents: int) -> None:
        self.store, self.count = store, documents // len(CRAWLS)
        self.ids = [hexadecimal(number, self.count, 16) for number in range(len(CRAWLS))]
        self.hashes = [hexadecimal(100 + number, self.count, 32) for number in range(len(CRAWLS))]
        self.domains = pa.array([f"site{number}.example" for number in range(DOMAINS)])

    def write(
        self,
        stage: str,
        key: str,
        parts: Sequence[tuple[pa.Schema, Columns, NDArray[np.bool_] | None]],
        inputs: Mapping[str, Ref],
        config: Mapping[str, Any] | None = None,
        *,
        counts: Mapping[str, int] | None = None,
        metadata: Mapping[str, Any] | None = None,
        indexes: Sequence[str] = (),
    ) -> Ref:
        """An artefact: of each part its columns, and which rows it has."""
        builder = self.store.begin(stage, key, version="1", config=config or {}, inputs=inputs)
        if (done := builder.finished()) is not None:
            return done
        records = [
            builder.write_part(f"{number:05d}", self._batches(*part), part[0])
            for number, part in enumerate(parts)
        ]
        return builder.commit(records, counts=counts, metadata=metadata, indexes=indexes)

    def _batches(
        self, columns: pa.Schema, made: Columns, kept_n: NDArray[np.bool_] | None
    ) -> Iterator[pa.RecordBatch]:
        for start in range(0, self.count, BATCH):
            count = min(BATCH, self.count - start)
            named = made(start, count)
            batch = pa.RecordBatch.from_arrays([named[name] for name in columns.names], schema=columns)
            yield batch if kept_n is None else batch.filter(pa.array(kept_n[start : start + count]))


def make(folder: Path, documents: int) -> None:
    """A record up to masks, and one subset."""
    from datamask_pipeline.stages import materialise

    store = Store(folder)
    made = Made(store, documents)
    n = made.count
    found, scored = {}, {}
    about = {"rules": {"model": "m", "revision": "1", "scale_min": 0.0, "scale_max": 1.0}}
    for k, crawl in enumerate(CRAWLS):

        def of_documents(start: int, count: int, k: int = k, crawl: str = crawl) -> Mapping[str, pa.Array]:
            return {
                "id": made.ids[k].slice(start, count), "content_hash": made.hashes[k].slice(start, count),
                "crawl": same(crawl, count), "shard": same("00000", count), "url": same("http://x/", count),
                "date": same("2024", count), "language": same("en", count),
                "row": pa.array(np.arange(start, start + count)), "token_count": pa.array(np.full(count, 100)),
            }  # fmt: skip

        def of_scores(start: int, count: int, k: int = k) -> Mapping[str, pa.Array]:
            return {
                "id": made.ids[k].slice(start, count), "scorer": same("rules", count), "model": same("m", count),
                "score": pa.array(np.random.default_rng(7 + k + start).random(count)),
                "scale_min": pa.array(np.zeros(count)), "scale_max": pa.array(np.ones(count)),
                "revision": same("1", count), "reason": pa.nulls(count, pa.string()),
            }  # fmt: skip

        found[crawl] = made.write("ingest", crawl, [(DOCUMENTS, of_documents, None)], {})
        inputs = {"documents": found[crawl]}
        scored[crawl] = made.write(
            "score", crawl, [(schema.SCORES, of_scores, None)], inputs, metadata={"scorers": about}
        )
    masks = {release: release_of(made, release, found, scored) for release in RELEASES}
    chosen = np.random.default_rng(11).random(n) < 0.8

    def of_subset(start: int, count: int) -> Mapping[str, pa.Array]:
        k = len(CRAWLS) - 1
        domain = made.domains.take(pa.array(np.random.default_rng(start).integers(0, DOMAINS, count)))
        urls = pa.compute.binary_join_element_wise("https://www.", domain, "/page", "")
        named = {
            name: column.slice(start, count)
            for name, column in (("id", made.ids[k]), ("content_hash", made.hashes[k]))
        }
        return named | {"url": urls, "crawl": same(CRAWLS[k], count)}

    columns = pa.schema([(name, pa.string()) for name in ("id", "crawl", "content_hash", "url")])
    kept = int(chosen.sum())
    made.write(
        "materialise", "second/datamask", [(columns, of_subset, chosen)],
        {"selection": masks["second"]["datamask"]}, counts={"rows_in": kept, "kept": kept},
        metadata={"tokens": 100 * kept}, indexes=materialise.INDEXES,
    )  # fmt: skip
    store.publish_bytes("releases/first.json", b'{"crawls": ["CC-0"]}')


def release_of(
    made: Made, release: str, found: Mapping[str, Ref], scored: Mapping[str, Ref]
) -> dict[str, Ref]:
    """A release's tables, and the mask of each of its arms."""
    n, crawls, seed = made.count, RELEASES[release], len(RELEASES[release])
    draws = np.random.default_rng(seed)
    eligible = [draws.random(n) < 0.9 for _ in crawls]
    domains = [np.random.default_rng(55 + k).integers(0, DOMAINS, n) for k in range(len(crawls))]
    excluded = 1 + np.random.default_rng(5).integers(0, 2, n)
    words = pa.array([None, "validation", "takedown"])

    def common(k: int, start: int, count: int) -> dict[str, pa.Array]:
        return {
            "position": pa.array(np.arange(start, start + count) + k * n), "crawl": same(crawls[k], count),
            "id": made.ids[k].slice(start, count), "shard": same("00000", count),
            "row": pa.array(np.arange(start, start + count)), "token_count": pa.array(np.full(count, 100)),
            "domain": made.domains.take(pa.array(domains[k][start : start + count])),
        }  # fmt: skip

    def of_pool(k: int) -> Columns:
        def columns(start: int, count: int) -> Mapping[str, pa.Array]:
            why = np.where(eligible[k], 0, excluded)[start : start + count]
            ids = made.ids[k].slice(start, count)
            return common(k, start, count) | {
                "content_hash": made.hashes[k].slice(start, count), "num_copies": pa.array(np.ones(count, np.int64)),
                "representative_crawl": same(crawls[k], count), "representative_id": ids,
                "eligible": pa.array(why == 0), "validation": pa.array(why == 1), "exclusion": words.take(pa.array(why)),
            }  # fmt: skip

        return columns

    def of_index(k: int) -> Columns:
        def columns(start: int, count: int) -> Mapping[str, pa.Array]:
            score = np.random.default_rng(7 + k + start).random(count)
            return common(k, start, count) | {"score_rules": pa.array(score)}

        return columns

    pool = made.write(
        "pool", release, [(schema.CANDIDATES, of_pool(k), None) for k in range(len(crawls))],
        {f"documents/{crawl}": found[crawl] for crawl in crawls}, {"crawls": list(crawls)},
    )  # fmt: skip
    index = made.write(
        "gather", release, [(INDEX, of_index(k), eligible[k]) for k in range(len(crawls))],
        {"candidates": pool} | {f"scores/{crawl}": scored[crawl] for crawl in crawls}, {"crawls": list(crawls)},
    )  # fmt: skip
    masks = {}
    for arm, told in ARMS.items():
        into = "quality at or above threshold" if arm == "top" else told.format("above")
        reasons = pa.array([told.format("below"), into])

        def of_mask(k: int, arm: str = arm, reasons: pa.Array = reasons) -> Columns:
            def columns(start: int, count: int) -> Mapping[str, pa.Array]:
                draws = np.random.default_rng([seed, k, start, len(arm)])
                quality, chosen = draws.random(count), draws.random(count) < 0.2
                named = {name: pa.array(quality) for name in ("logit", "probability", "quality")}
                return common(k, start, count) | named | {
                    "selected": pa.array(chosen), "quality_marginal": pa.array(quality / 9),
                    "diversity_marginal": pa.array(draws.random(count)), "threshold": pa.array(np.full(count, 0.5)),
                    "reason": reasons.take(pa.array(chosen.astype(np.int64))),
                }  # fmt: skip

            return columns

        rows = int(sum(each.sum() for each in eligible))
        settings = {"policy": arm, "scorers": {}, "lamb": 0.5, "ratio": 0.2, "seed": 0, "quotas": None}
        masks[arm] = made.write(
            "select", f"{release}/{arm}", [(schema.SELECTION, of_mask(k), eligible[k]) for k in range(len(crawls))],
            {"index": index}, settings | {"score_normalisation": "rank"}, counts={"rows_in": rows, "kept": rows},
            metadata={"objective": 0.0, "blocks": [{"normalisation": {}}]},
        )  # fmt: skip
    return masks


def ask(question: str, folder: Path, documents: int) -> Callable[[], None]:
    """The command of a question, imported and ready to run."""
    from datamask_pipeline.cli.app import app

    document = hexadecimal(len(CRAWLS) - 1, documents // len(CRAWLS), 16)[documents // 9].as_py()
    targets = {"document": document, "domain": "site7.example", "crawl": CRAWLS[-1], "scorer": "rules"}
    arms = {"marginals": "datamask", "quality": "top"}
    about = question.split()[-1]
    arguments = {
        "why": ["why", document],
        "impact": ["impact", targets.get(about, "")],
        "diff": ["diff", *(f"{release}/{arms.get(about)}" for release in RELEASES)],
    }[question.split()[0]]
    return lambda: app(["audit", *arguments, "--json", "-s", f"store={folder}"], standalone_mode=False)


def main() -> None:
    """Do it, and print processor and wall seconds, imports aside, and the peak of anonymous memory in MiB."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=["make", *QUESTIONS])
    parser.add_argument("folder", type=Path)
    parser.add_argument("documents", type=int)
    options = parser.parse_args()
    pa.set_cpu_count(2)
    work = (
        (lambda: make(options.folder, options.documents))
        if options.which == "make"
        else ask(options.which, options.folder, options.documents)
    )
    peak, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], anonymous_mib())

    threading.Thread(target=watch, daemon=True).start()
    begun, wall = time.process_time(), time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()) as told:
        work()
    result = {"seconds": time.process_time() - begun, "wall_seconds": time.perf_counter() - wall}
    done.set()
    if options.which != "make" and not told.getvalue():
        raise SystemExit(f"{options.which}: no answer")
    print(json.dumps(result | {"peak_mib": peak[0]}))


if __name__ == "__main__":
    main()
