"""The assets of ingestion: documents, and the rows that did not become one."""

from collections.abc import Iterator

import dagster as dg

from assets import partitions
from assets.checks import (
    Artefact,
    Verdict,
    asset_checks,
    none_found,
    rows_in_are_kept_plus_dropped,
    same_schema,
)
from assets.launchpad import code_version, launchpad
from assets.step import COMMON, SOURCE_POOL, run_stages
from datamask_pipeline import schema
from datamask_pipeline.pipeline import PipelineConfig
from datamask_pipeline.stages import ingest
from resources import PipelineResource


def build(config: PipelineConfig) -> dg.Definitions:
    """The assets and their checks."""
    version = code_version(ingest.VERSION, config.ingest, config.source)
    common = {
        "group_name": "crawls",
        "owners": COMMON["owners"],
        "code_version": version,
        "kinds": {"parquet"},
        "partitions_def": partitions.CRAWLS,
    }

    @dg.multi_asset(
        name="ingest",
        specs=[
            dg.AssetSpec(
                "crawl_documents",
                description="A crawl's documents in FineWeb's schema, with where each came from.",
                tags={"stage": "ingest"},
                **common,
            ),
            dg.AssetSpec(
                "rejected_documents",
                description="Rows of a crawl that did not become a document, each with its reason.",
                tags={"stage": "ingest"},
                **common,
            ),
        ],
        partitions_def=partitions.CRAWLS,
        config_schema=launchpad(config.ingest),
        pool=SOURCE_POOL,
        retry_policy=COMMON["retry_policy"],
        backfill_policy=COMMON["backfill_policy"],
    )
    def ingest_crawl(
        context: dg.AssetExecutionContext, pipeline: PipelineResource
    ) -> Iterator[dg.MaterializeResult[None]]:
        yield from run_stages(
            context,
            pipeline,
            "ingest",
            {"crawl_documents": (None, ()), "rejected_documents": (None, ())},
        )

    return dg.Definitions(
        assets=[ingest_crawl],
        asset_checks=[
            asset_checks(
                "crawl_documents",
                ingest.STAGE,
                partitions.CRAWLS,
                blocking=[columns, rows_in_are_kept_plus_dropped, ids_are_unique, every_text_says_something],
            ),
            asset_checks(
                "rejected_documents",
                ingest.REJECTED_STAGE,
                partitions.CRAWLS,
                blocking=[rejected_columns, every_rejection_has_a_reason, rejected_rows_are_the_dropped_ones],
            ),
        ],
    )


def columns(artefact: Artefact) -> Verdict:
    """FineWeb's columns and provenance, in order and type; columns of the source's own may follow."""
    return same_schema(artefact, schema.DOCUMENTS, more=True)


def ids_are_unique(artefact: Artefact) -> Verdict:
    """No id stands twice in a crawl."""
    (twice,) = artefact.query(f"SELECT count(*) - count(DISTINCT id) FROM {artefact.sql(columns='id')}")
    return none_found(twice, "repeated ids")


def every_text_says_something(artefact: Artefact) -> Verdict:
    """No text or id is null or blank."""
    blank = artefact.count("text IS NULL OR trim(text) = '' OR id IS NULL OR id = ''")
    return none_found(blank, "blank texts or ids")


def rejected_columns(artefact: Artefact) -> Verdict:
    """Columns and types are the record's."""
    return same_schema(artefact, schema.REJECTED)


def every_rejection_has_a_reason(artefact: Artefact) -> Verdict:
    """No row was dropped without saying why."""
    unexplained = artefact.count("reason IS NULL OR reason = ''")
    return none_found(unexplained, "rejections without a reason")


def rejected_rows_are_the_dropped_ones(artefact: Artefact) -> Verdict:
    """As many rows as ingestion counted as dropped."""
    documents = artefact.neighbour(ingest.STAGE)
    counts = artefact.pipeline.store.manifest(documents)["counts"]
    dropped = counts["rows_in"] - counts["kept"]
    return Verdict(artefact.ref.rows == dropped, {"rejected": artefact.ref.rows, "dropped": dropped})
