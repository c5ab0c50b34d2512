"""Ingest: a crawl's rows become documents, or rejected rows with a reason. Knows no embedding and no score.

Each shard is one part, published whole; a killed run goes on after the last whole shard. Nothing is visible
until every shard is through: a file that cannot be read as a whole refuses the crawl.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from datamask_pipeline import duck, schema
from datamask_pipeline.errors import InputError, IntegrityError
from datamask_pipeline.settings import execution_field
from datamask_pipeline.sources.base import Shard, Source
from datamask_pipeline.sources.filters import RowFilters
from datamask_pipeline.stages.ingest_shards import DROPPED_ERASED, CrawlWriter
from datamask_pipeline.stages.shards import ShardWork
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.tombstones import erased

logger = logging.getLogger(__name__)

STAGE: Final = "ingest"
REJECTED_STAGE: Final = "rejected"
VERSION: Final = "12"

Progress = Callable[[str, int, int | None], None]


class IngestConfig(RowFilters):
    """Which rows become documents, and how they are read."""

    batch_rows: int = execution_field(1_024, ge=1, description="Rows held in memory at a time.")


def begin(
    config: IngestConfig, *, store: Store, crawl: str, source: Source, progress: Progress | None = None
) -> "_Ingestion":
    """The work on one crawl, shard by shard; arguments and errors as of `run`."""
    shards = source.shards(crawl)
    if not shards:
        raise InputError(f"crawl {crawl!r} has no shard", remedy="point the source at files")
    most = Counter(shard.name for shard in shards).most_common(1)[0]
    if most[1] > 1:
        raise IntegrityError(
            f"source {source.name!r} gave crawl {crawl!r} {most[1]} shards named {most[0]!r}"
        )
    if folders := [shard.name for shard in shards if "/" in shard.name]:
        raise IntegrityError(
            f"source {source.name!r} gave crawl {crawl!r} a shard named {folders[0]!r}: it names a file, without a slash"
        )
    settings = config.result_config() | {"source": source.result_config()}
    digests: dict[str, Ref | str] = {f"shards/{shard.name}": shard.digest for shard in shards}
    extras = source.extra_fields(crawl)
    _refuse_reserved(extras, crawl)
    if (purged := erased(store, crawl)) is not None:
        digests["erased"] = purged.digest
    builder = store.begin(STAGE, crawl, version=VERSION, config=settings, inputs=digests)
    rejected = store.begin(REJECTED_STAGE, crawl, version=VERSION, config=settings, inputs=digests)
    writer = CrawlWriter(
        store=store,
        crawl=crawl,
        source=source,
        filters=config,
        batch_rows=config.batch_rows,
        schema=pa.schema([*schema.DOCUMENTS, *map(schema.source_column, extras)]),
        documents=builder,
        rejected=rejected,
        erased=purged,
    )
    return _Ingestion(writer, shards, progress)


def run(
    config: IngestConfig, *, store: Store, crawl: str, source: Source, progress: Progress | None = None
) -> tuple[Ref, Ref]:
    """Ingest one crawl.

    Args:
        config: The filters.
        store: The record.
        crawl: One of the source's crawls.
        source: Where its shards come from.
        progress: Told of shards done.

    Returns:
        The documents, and the rejected rows.

    Raises:
        InputError: a shard cannot be read as a whole, or the crawl has none that holds a row.
        IntegrityError: rows were lost or invented between source and record.
    """
    return begin(config, store=store, crawl=crawl, source=source, progress=progress).complete()


class _Ingestion(ShardWork[tuple[Ref, Ref]]):
    """A crawl on its way into the record."""

    def __init__(self, writer: CrawlWriter, shards: Sequence[Shard], progress: Progress | None) -> None:
        super().__init__(writer.documents, [shard.name for shard in shards])
        self._writer, self._shards, self._progress = writer, shards, progress

    def finished(self) -> tuple[Ref, Ref] | None:
        done, rejected = self._writer.documents.finished(), self._writer.rejected.finished()
        return None if done is None or rejected is None else (done, rejected)

    def has(self, name: str) -> bool:
        return self._writer.has(self._shard(name))

    def write(self, name: str) -> None:
        self._writer.write_shard(self._shard(name))
        if self._progress is not None:
            self._progress(f"ingest {self.builder.key}", self.num_done + 1, len(self.names))

    def finish(self) -> tuple[Ref, Ref]:
        parts, rejected_parts = self._writer.settle(self._shards)
        metadata: dict[str, Any] = {
            "source": self._writer.source.name,
            "shards": {
                shard.name: {"location": shard.location, "digest": shard.digest} for shard in self._shards
            },
        }
        if empty := _empty_shards(self._shards, parts):
            metadata["empty_shards"] = empty
        if without := sum(map(self._without_tokens, self.names)):
            metadata["without_tokens"] = without
        rejected = self._writer.rejected.commit(rejected_parts, metadata=metadata)
        counts = _totals(parts, rejected_parts)
        return self._writer.documents.commit(parts, counts=counts, metadata=metadata), rejected

    def _without_tokens(self, name: str) -> int:
        with self.builder.open_part(name) as part:
            counts = part.read(columns=["token_count"]).column(0)
        return len(counts) - int(pc.sum(pc.greater(counts, 0)).as_py() or 0)

    def _shard(self, name: str) -> Shard:
        return self._shards[self.names.index(name)]


def told(manifest: Mapping[str, Any]) -> Iterator[str]:
    """That documents lack what a budget in tokens needs, before they are embedded and scored."""
    if without := manifest["metadata"].get("without_tokens"):
        yield (
            f"{without} of {manifest['rows']} documents have no token count above 0: an arm whose budget is num_tokens "
            "would be refused for it"
        )


def _empty_shards(shards: Sequence[Shard], parts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of the shards without a row, as writers of partitioned data leave them; they are told in one line.

    Raises:
        InputError: no shard has a row.
    """
    empty = [
        shard for shard, part in zip(shards, parts, strict=True) if part["counts"].get("rows_in", 0) == 0
    ]
    if len(empty) == len(shards):
        raise InputError(
            f"all {len(shards)} shards are empty: no file holds a row",
            file=empty[0].location,
            value=0,
            remedy="point the source at files with documents",
        )
    if empty:
        logger.warning("%d of %d shards hold no row, e.g. %s", len(empty), len(shards), empty[0].location)
    return [shard.name for shard in empty]


def _refuse_reserved(extras: Iterable[pa.Field], crawl: str) -> None:
    """An extra column must stand once, and not where ingestion writes its own, or queries number rows."""
    seen: set[str] = set()
    for field in extras:
        # Of a source of another package; the files of ours are refused where they are read.
        if not isinstance(field, pa.Field):
            raise IntegrityError(
                f"crawl {crawl!r}: its source's `extra_fields` has {field!r}, which is no pyarrow.Field"
            )
        if field.name in seen:
            raise IntegrityError(
                f"crawl {crawl!r}: its source's `extra_fields` has column {field.name!r} twice"
            )
        seen.add(field.name)
        if field.name in schema.DOCUMENTS.names or field.name.lower() in duck.ROW_NUMBERS:
            raise InputError(
                f"crawl {crawl!r} has a column of a name that the record uses itself",
                field=field.name,
                remedy="rename or drop the column",
            )


def _totals(
    parts: Iterable[Mapping[str, Any]], rejected_parts: Iterable[Mapping[str, Any]]
) -> dict[str, int]:
    """Rows in, kept, and dropped by reason, over all shards."""
    totals = Counter({"rows_in": 0, "kept": 0})
    for part in parts:
        totals["rows_in"] += part["counts"]["rows_in"]
        totals["kept"] += part["rows"]
        if erased_rows := part["counts"].get(DROPPED_ERASED):
            totals[DROPPED_ERASED] += erased_rows
    for part in rejected_parts:
        totals.update({f"dropped_{reason}": number for reason, number in part["counts"].items()})
    return dict(totals)
