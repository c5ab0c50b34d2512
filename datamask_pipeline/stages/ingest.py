"""Ingest: a crawl's rows become documents, or rejected rows with a reason. Knows no embedding and no score.

Each shard is one part, published whole; a killed run goes on after the last whole shard. Nothing is visible
until every shard is through: a file that cannot be read as a whole refuses the crawl.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pydantic

from datamask_pipeline import duck, schema
from datamask_pipeline.errors import InputError, IntegrityError
from datamask_pipeline.settings import Settings, execution_field
from datamask_pipeline.sources.base import Shard, Source, SourceBatch
from datamask_pipeline.sources.content import content_hash
from datamask_pipeline.sources.verdict import REASONS, RowRules, invalid_utf8_rows, verdict
from datamask_pipeline.storage import ROW_GROUP_ROWS, ArtefactBuilder, Ref, Store

STAGE: Final = "ingest"
REJECTED_STAGE: Final = "rejected"
VERSION: Final = "1"

Progress = Callable[[str, int, int | None], None]


class IngestConfig(Settings):
    """Which rows become documents. Every filter is off unless it is set."""

    languages: tuple[str, ...] = pydantic.Field(
        (), description="Keep only documents of these languages, as the crawl states them; empty keeps all."
    )
    min_language_score: float = pydantic.Field(
        0.0, ge=0.0, le=1.0, description="Keep only documents whose language score is at least this."
    )
    min_chars: int = pydantic.Field(0, ge=0, description="Keep only texts with at least this many characters.")
    max_chars: int | None = pydantic.Field(
        None, ge=1, description="Keep only texts with at most this many characters; null keeps all."
    )
    max_text_bytes: int = pydantic.Field(
        8_000_000,
        ge=1,
        description="Larger texts are rejected as `too_large`, so that one row cannot exhaust memory.",
    )
    batch_rows: int = execution_field(1_024, ge=1, description="Rows held in memory at a time.")


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
        InputError: a shard cannot be read as a whole, or the crawl has none.
        IntegrityError: rows were lost or invented between source and record.
    """
    shards = source.shards(crawl)
    if not shards:
        raise InputError(f"crawl {crawl!r} has no shard", remedy="point the source at files")
    settings = config.result_config() | {"source": source.result_config()}
    digests: dict[str, Ref | str] = {f"shards/{shard.name}": shard.digest for shard in shards}
    builder = store.begin(STAGE, crawl, version=VERSION, config=settings, inputs=digests)
    rejected = store.begin(REJECTED_STAGE, crawl, version=VERSION, config=settings, inputs=digests)
    done, rejected_done = builder.finished(), rejected.finished()
    if done is not None and rejected_done is not None:
        return done, rejected_done

    extras = source.extra_fields(crawl)
    _refuse_reserved(extras, crawl)
    work = _Work(config, store, crawl, source, pa.schema([*schema.DOCUMENTS, *extras]), builder, rejected)
    for number, shard in enumerate(shards):
        work.write_documents(shard)
        if progress is not None:
            progress(f"ingest {crawl}", number + 1, len(shards))
    parts, rejected_parts = work.settle_duplicates(shards)

    counts = _totals(parts, rejected_parts)
    metadata = {
        "source": source.name,
        "shards": {shard.name: {"location": shard.location, "digest": shard.digest} for shard in shards},
        "wall_columns": work.schema.names,
    }
    rejected_ref = rejected.commit(rejected_parts, metadata={"source": source.name})
    return builder.commit(parts, counts=counts, metadata=metadata), rejected_ref
