"""The asset of pooling: which documents of a release may be selected."""

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
from assets.step import COMMON, run_stage
from datamask_pipeline import schema
from datamask_pipeline.pipeline import PipelineConfig
from datamask_pipeline.stages import ingest, pool
from resources import PipelineResource


def build(config: PipelineConfig) -> dg.Definitions:
    """The asset and its checks."""

    @dg.asset(
        deps=[partitions.of_every_crawl("crawl_documents")],
        partitions_def=partitions.RELEASES,
        group_name="releases",
        kinds={"duckdb", "parquet"},
        tags={"stage": "pool"},
        code_version=code_version(pool.VERSION, config.pool),
        config_schema=launchpad(config.pool),
        **COMMON,
    )
    def candidate_documents(
        context: dg.AssetExecutionContext, pipeline: PipelineResource
    ) -> dg.MaterializeResult[None]:
        """Every document of a release's crawls: whether it may be selected, or why not, and its first copy."""
        return run_stage(context, pipeline, "pool")

    return dg.Definitions(
        assets=[candidate_documents],
        asset_checks=[
            asset_checks(
                "candidate_documents",
                pool.STAGE,
                partitions.RELEASES,
                blocking=[
                    columns,
                    rows_in_are_kept_plus_dropped,
                    every_document_stands_once,
                    eligible_contents_are_distinct,
                    ineligible_documents_have_a_reason,
                ],
            ),
        ],
    )


def columns(artefact: Artefact) -> Verdict:
    """Columns and types are the record's."""
    return same_schema(artefact, schema.CANDIDATES)


def every_document_stands_once(artefact: Artefact) -> Verdict:
    """As many rows as the release's crawls have documents, numbered from 0 without a gap."""
    crawls = artefact.pipeline.release_crawls(artefact.release)
    documents = sum(artefact.neighbour(ingest.STAGE, crawl).rows for crawl in crawls)
    rows, positions, last = artefact.query(
        f"SELECT count(*), count(DISTINCT position), coalesce(max(position), -1) FROM {artefact.sql()}"
    )
    return Verdict(rows == documents == positions == last + 1, {"rows": rows, "documents": documents})


def eligible_contents_are_distinct(artefact: Artefact) -> Verdict:
    """Of several copies of a content, or documents of one id, at most one may be selected."""
    (repeated,) = artefact.query(
        f"""
        SELECT 2 * count(*) - count(DISTINCT content_hash) - count(DISTINCT id)
        FROM {artefact.sql(columns="id, content_hash, eligible")} WHERE eligible
        """
    )
    return none_found(repeated, "repeated ids or contents")


def ineligible_documents_have_a_reason(artefact: Artefact) -> Verdict:
    """A document is eligible, or excluded for a known reason; never both, never neither."""
    known = ", ".join(f"'{reason}'" for reason in pool.EXCLUSIONS)
    unclear = artefact.count(f"eligible = (exclusion IS NOT NULL) OR exclusion NOT IN ({known})")
    return none_found(unclear, "documents of unclear eligibility")
