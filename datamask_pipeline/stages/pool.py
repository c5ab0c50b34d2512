"""Pool: which documents of a release's crawls may be selected, and why the others may not.

Exact copies are collapsed by content over all crawls, before any block is cut: random blocks would scatter
the copies and no set function would see them. A small share of the contents is held out of every arm, so
that every model is validated on the same unseen text.
"""

from collections.abc import Mapping
from typing import Final

import pydantic

from datamask_pipeline import duck, schema
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.settings import Settings
from datamask_pipeline.storage import ROW_GROUP_ROWS, Ref, Store

STAGE: Final = "pool"
VERSION: Final = "1"

#: Why a document may not be selected; the first that holds is recorded.
EXCLUSIONS: Final = ("takedown", "duplicate_content", "duplicate_id", "validation")


class PoolConfig(Settings):
    """How the candidates of a release are decided."""

    validation_share: float = pydantic.Field(
        0.02,
        ge=0.0,
        lt=1.0,
        description="Share of distinct contents held out of every arm, for validation bits per byte.",
    )
    takedown: tuple[str, ...] = pydantic.Field(
        (), description="Document ids or content hashes withdrawn; all copies of their content go with them."
    )


def run(config: PoolConfig, *, store: Store, release: str, documents: Mapping[str, Ref]) -> Ref:
    """Decide the candidates of a release.

    Args:
        config: The rules.
        store: The record.
        release: The release's name.
        documents: The ingested documents of each crawl, in the release's order of crawls; of several copies
            the first by (crawl, shard, row) represents the content.

    Returns:
        One row per document of the crawls, one part per crawl.

    Raises:
        ConfigurationError: the release has no crawl.
    """
    if not documents:
        raise ConfigurationError(f"release {release!r} has no crawls; name at least one in its configuration")
    crawls = list(documents)  # their order decides who represents a content, so it is part of the settings
    settings = config.result_config() | {"crawls": crawls}
    builder = store.begin(STAGE, release, version=VERSION, config=settings, inputs={**documents})
    if (done := builder.finished()) is not None:
        return done
    with duck.connect(store, builder.scratch()) as connection:
        connection.execute("CREATE TEMP TABLE takedown (name VARCHAR)")
        if config.takedown:
            connection.executemany("INSERT INTO takedown VALUES (?)", [(name,) for name in config.takedown])
        connection.execute(_candidates_sql(store, list(documents.values()), config.validation_share))
        parts = [
            builder.write_part(
                f"{index:05d}",
                duck.stream(
                    connection,
                    f"SELECT * FROM candidates WHERE artefact_order = {index} ORDER BY position",
                    schema.CANDIDATES,
                    batch_rows=ROW_GROUP_ROWS,
                ),
                schema.CANDIDATES,
            )
            for index in range(len(crawls))
        ]
        tally = connection.execute(
            "SELECT coalesce(exclusion, 'kept'), count(*) FROM candidates GROUP BY 1 ORDER BY 1"
        ).fetchall()
    found = {str(reason): int(number) for reason, number in tally}
    counts = {"rows_in": sum(ref.rows for ref in documents.values()), "kept": found.get("kept", 0)}
    counts |= {f"dropped_{reason}": found.get(reason, 0) for reason in EXCLUSIONS}
    return builder.commit(parts, counts=counts, metadata={"crawls": crawls})


def _candidates_sql(store: Store, refs: list[Ref], validation_share: float) -> str:
    columns = "crawl, shard, row, id, content_hash, url, token_count"
    validation_below = round(validation_share * 0x1_0000_0000)
    return f"""
        CREATE TEMP TABLE candidates AS
        WITH documents AS (SELECT * FROM {duck.parts_sql(store, refs, columns)}),
        withdrawn AS (
            SELECT DISTINCT content_hash FROM documents
            WHERE id IN (SELECT name FROM takedown) OR content_hash IN (SELECT name FROM takedown)
        ),
        ranked AS (
            SELECT documents.*,
                row_number() OVER (ORDER BY artefact_order, part_order, part_row) - 1 AS position,
                row_number() OVER (same_id ORDER BY artefact_order, part_order, part_row) AS id_rank,
                row_number() OVER (same_content ORDER BY artefact_order, part_order, part_row) AS copy_rank,
                count(*) OVER (same_content) AS num_copies,
                first_value(crawl) OVER (
                    same_content ORDER BY artefact_order, part_order, part_row) AS representative_crawl,
                first_value(id) OVER (
                    same_content ORDER BY artefact_order, part_order, part_row) AS representative_id,
                content_hash IN (SELECT content_hash FROM withdrawn) AS is_withdrawn,
                CAST('0x' || content_hash[1:8] AS BIGINT) < {validation_below} AS is_validation
            FROM documents
            WINDOW same_id AS (PARTITION BY id), same_content AS (PARTITION BY content_hash)
        ),
        judged AS (
            SELECT *,
                CASE WHEN is_withdrawn THEN 'takedown'
                     WHEN copy_rank > 1 THEN 'duplicate_content'
                     WHEN id_rank > 1 THEN 'duplicate_id'
                     WHEN is_validation THEN 'validation' END AS exclusion
            FROM ranked
        )
        SELECT position, crawl, shard, row, id, content_hash,
            coalesce(regexp_extract(lower(url), '^[a-z][a-z0-9+.-]*://(?:www[.])?([^/:?#]+)', 1), '') AS domain,
            token_count, num_copies, representative_crawl, representative_id,
            exclusion IS NULL AS eligible,
            coalesce(exclusion = 'validation', false) AS validation,
            exclusion, artefact_order
        FROM judged
    """
