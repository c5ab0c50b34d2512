"""How much work a step is, and about how long it takes by what this record measured. Reads manifests and lists of shards."""

import dataclasses
import math
import statistics
from collections.abc import Iterator
from typing import Final

from datamask_pipeline.pipeline.chain import Pipeline
from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.pipeline.stage import Scope
from datamask_pipeline.storage.changes import current_manifest
from datamask_pipeline.storage.ref import stored_bytes
from datamask_pipeline.storage.releases import frozen_crawls

PROPORTION: Final = "in proportion to documents; a model as those made before, whatever its settings"
"""What estimates by a record assume; a small run's start-up and stages that read a sample of one size come out too long."""


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """Of one step; ``None`` where nothing in the record tells.

    Attributes:
        documents: Of the crawls that it rests on; files that were not read yet have as many each as those that were.
        seconds: On the clock, as this record was made.
    """

    documents: int | None
    seconds: float | None


def estimate(pipeline: Pipeline, stage: str, key: str) -> Estimate:
    """What a step is and takes: what it took before; or, by its documents, what others of its stage took.

    A model takes what the middle one of the others took: how long is in its settings, not in documents.
    """
    found, store = FLOW.stage(stage), pipeline.store
    artefact = found.makes[0].artefact
    documents = documents_of(pipeline, _crawls(pipeline, found.scope, key))
    before = current_manifest(store, artefact, key)
    if before is not None and not before.get("rows_carried"):
        read = _read(pipeline, _crawls(pipeline, found.scope, key))
        grown = documents / read if documents and read and found.scope != "run" else 1.0
        return Estimate(documents, grown * float(before["wall_seconds"]))
    took = measured(pipeline, stage)
    if not took:
        return Estimate(documents, None)
    if found.scope == "run" or documents is None or not all(each.documents for each in took):
        return Estimate(documents, statistics.median(each.seconds for each in took))
    return Estimate(documents, rate(took) * documents)


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """What one current artefact of a stage took.

    Attributes:
        documents: That were read of its crawls, without those whose rows were carried over; 0 where that is unknown.
        seconds: On the clock.
        num_bytes: Of its tables, arrays and files, and of what else the stage made with it; a share of them by documents.
        fixed_bytes: Of what does not grow with documents: a model, a tokenizer, questions.
    """

    documents: int
    seconds: float
    num_bytes: int
    fixed_bytes: int


def measured(pipeline: Pipeline, stage: str) -> list[Measured]:
    """What the current artefacts of a stage took in this record; those aside of which no row was computed."""
    found, store = FLOW.stage(stage), pipeline.store
    artefact, took = found.makes[0].artefact, []
    for key in store.keys(artefact):
        if (made := current_manifest(store, artefact, key)) is None:
            continue
        carried = made.get("rows_carried", 0)
        computed = 1 - carried / made["rows"] if carried else 1.0
        if not computed:
            continue
        beside = [current_manifest(store, output.artefact, key) for output in found.makes[1:]]
        manifests = [made, *(each for each in beside if each is not None)]
        documents = _read(pipeline, _crawls(pipeline, found.scope, key)) or 0
        fixed = sum(tree["bytes"] for each in manifests for tree in each["trees"])
        took.append(
            Measured(
                math.ceil(computed * documents),
                float(made["wall_seconds"]),
                round(computed * (sum(map(stored_bytes, manifests)) - fixed)),
                fixed,
            )
        )
    return took


def rate(took: list[Measured]) -> float:
    """Seconds a document."""
    return sum(each.seconds for each in took) / sum(each.documents for each in took)


def documents_of(pipeline: Pipeline, crawls: list[str]) -> int | None:
    """Documents of some crawls together."""
    counts = [_documents(pipeline, crawl) for crawl in crawls]
    return None if None in counts else sum(filter(None, counts))


def documents_before(pipeline: Pipeline, crawls: list[str]) -> tuple[int | None, str]:
    """Documents of some crawls together, of those not read yet the rows that their files state, as far as these do.

    Of Parquet files each footer is read.

    Returns:
        The number, ``None`` where nothing tells; and what it takes for crawls that were not read, empty where all were.
    """
    unread = [crawl for crawl in crawls if current_manifest(pipeline.store, "ingest", crawl) is None]
    if not unread:
        return documents_of(pipeline, crawls), ""
    of = "" if unread == crawls else "of crawls that were not read yet, "
    stated = [pipeline.source.num_rows(crawl) for crawl in unread]
    read = documents_of(pipeline, [crawl for crawl in crawls if crawl not in unread])
    if None in stated or read is None:
        taken = "as many documents a file as in crawls that were read, as files do not state their rows"
        return documents_of(pipeline, crawls), of + taken
    taken = "rows that its files state; what will be rejected is among them"
    return read + sum(filter(None, stated)), of + taken


def num_shards(pipeline: Pipeline, crawls: list[str]) -> int:
    """Files of the source that some crawls have by now."""
    return sum(len(pipeline.source.shards(crawl)) for crawl in crawls if crawl in pipeline.crawls())


def told(pipeline: Pipeline, release: str, steps: list[tuple[str, str]]) -> Iterator[str]:
    """What the steps of a release are in all, one line each."""
    crawls = pipeline.planned_crawls(release)
    documents = documents_of(pipeline, crawls)
    many = "unknown, as no crawl was read yet" if documents is None else f"{documents:,}"
    yield f"{release}: {len(crawls)} crawls, {num_shards(pipeline, crawls):,} shards; documents: {many}"
    found = {step: estimate(pipeline, *step).seconds for step in steps}
    seconds = sum(filter(None, found.values()))
    unknown = dict.fromkeys(stage for (stage, _), each in found.items() if each is None)
    by_stage: dict[str, float] = {}
    for (stage, _), each in found.items():
        by_stage[stage] = by_stage.get(stage, 0.0) + (each or 0.0)
    longest = max(by_stage, key=lambda stage: by_stage[stage], default="")
    if seconds:
        share = f"{by_stage[longest] / seconds:.0%} of it {longest}"
        yield f"{release}: about {duration(seconds)} as this record was made, {share} ({PROPORTION})"
    if unknown:
        yield f"{release}: never measured in this record: {', '.join(unknown)}"


def duration(seconds: float | None) -> str:
    """For people to read; `?` for what is not known."""
    if seconds is None:
        return "?"
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def _crawls(pipeline: Pipeline, scope: Scope, key: str) -> list[str]:
    if scope == "crawl":
        return [key]
    release = key.partition("/")[0]
    return frozen_crawls(pipeline.store, release) or pipeline.planned_crawls(release)


def _read(pipeline: Pipeline, crawls: list[str]) -> int | None:
    """Documents of some crawls as they were read; ``None`` where one was not."""
    refs = [pipeline.store.current("ingest", crawl) for crawl in crawls]
    return None if None in refs else sum(ref.rows for ref in refs if ref is not None)


def _documents(pipeline: Pipeline, crawl: str) -> int | None:
    store = pipeline.store
    if (made := current_manifest(store, "ingest", crawl)) is not None:
        parts, rows = len(made["parts"]), int(made["rows"])
        now = num_shards(pipeline, [crawl]) or parts
        # Files came or went since it was read.
        return rows if now == parts or not parts else round(rows / parts * now)
    read = [other for other in store.keys("ingest") if other in pipeline.crawls()]
    rows = sum(ref.rows for other in read if (ref := store.current("ingest", other)) is not None)
    shards = num_shards(pipeline, read)
    return round(rows / shards * num_shards(pipeline, [crawl])) if shards else None
