"""The asset of materialisation: the subset of one arm, text and scores together."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import pyarrow as pa

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
from assets.metadata import Metadata, parts_schema, scalars
from assets.step import COMMON, run_stage
from datamask_pipeline import schema
from datamask_pipeline.pipeline import Pipeline, PipelineConfig
from datamask_pipeline.stages import materialise, select
from datamask_pipeline.storage import Ref
from resources import PipelineResource


def build(config: PipelineConfig) -> dg.Definitions:
    """The asset and its checks."""
    arm_partitions = partitions.release_arms(config)

    @dg.asset(
        deps=[
            "selection_mask",
            partitions.of_the_release("candidate_documents"),
            partitions.of_every_crawl("crawl_documents"),
            partitions.of_every_crawl("quality_scores"),
        ],
        partitions_def=arm_partitions,
        group_name="selection",
        kinds={"duckdb", "parquet"},
        tags={"stage": "materialise"},
        code_version=code_version(materialise.VERSION, config.materialise),
        config_schema=launchpad(config.materialise),
        **COMMON,
    )
    def fineweb_mask(
        context: dg.AssetExecutionContext, pipeline: PipelineResource
    ) -> dg.MaterializeResult[None]:
        """The selected documents of one arm with text, provenance, scores and the selection's id."""
        return run_stage(context, pipeline, "materialise", headline=_headline)

    return dg.Definitions(
        assets=[fineweb_mask],
        asset_checks=[
            asset_checks(
                "fineweb_mask",
                materialise.STAGE,
                arm_partitions,
                blocking=[
                    columns,
                    rows_in_are_kept_plus_dropped,
                    ids_and_contents_are_distinct,
                    subset_is_the_mask,
                ],
            ),
        ],
    )


def columns(artefact: Artefact) -> Verdict:
    """The documents' columns and the selection's, in order and type; one column a scorer may follow."""
    return same_schema(artefact, pa.schema([*schema.DOCUMENTS, *schema.SUBSET_EXTRA]), more=True)


def ids_and_contents_are_distinct(artefact: Artefact) -> Verdict:
    """No id and no content stands twice."""
    (twice,) = artefact.query(
        f"""
        SELECT 2 * count(*) - count(DISTINCT id) - count(DISTINCT content_hash)
        FROM {artefact.sql(columns="id, content_hash")}
        """
    )
    return none_found(twice, "repeated ids or contents")


def subset_is_the_mask(artefact: Artefact) -> Verdict:
    """Exactly the documents that the current mask selects: none outside it, none missing, all of its id."""
    mask = artefact.neighbour(select.STAGE)
    outside, missing, of_another = artefact.query(
        f"""
        SELECT count(*) FILTER (m.id IS NULL), count(*) FILTER (s.id IS NULL),
            count(*) FILTER (s.selection_id <> '{materialise.selection_id(mask)}')
        FROM {artefact.sql(columns="crawl, id, selection_id")} AS s
        FULL JOIN (SELECT crawl, id FROM {artefact.sql(mask, "crawl, id, selected")} WHERE selected) AS m
        ON m.crawl = s.crawl AND m.id = s.id
        """
    )
    measured = {"outside the mask": outside, "missing": missing, "of another selection": of_another}
    return Verdict(not any(measured.values()), measured)


def _headline(pipeline: Pipeline, ref: Ref, manifest: Mapping[str, Any]) -> Metadata:
    found = manifest["metadata"]
    lineage = column_lineage(parts_schema(pipeline.store, ref).names)
    return {
        **scalars(found, "tokens"),
        "selection": str(found["selection"]),
        "dagster/column_lineage": lineage,
    }


def column_lineage(names: list[str]) -> dg.TableColumnLineage:
    """Which column of which asset each column of the subset comes from."""
    origins = {name: ("crawl_documents", name) for name in schema.DOCUMENTS.names}
    origins |= {name: ("selection_mask", name) for name in ("quality", "logit", "probability")}
    origins["num_copies"] = ("candidate_documents", "num_copies")
    origins |= {name: ("quality_scores", "score") for name in names if name.startswith("score_")}
    return dg.TableColumnLineage(
        {
            name: [dg.TableColumnDep(dg.AssetKey(asset), column)]
            for name, (asset, column) in origins.items()
            if name in names
        }
    )
