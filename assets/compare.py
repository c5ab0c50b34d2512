"""The asset of comparison: every arm of a release in one table."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets import partitions
from assets.checks import Artefact, Verdict, asset_checks, none_found, same_schema
from assets.launchpad import code_version, launchpad
from assets.metadata import Metadata
from assets.step import COMMON, run_stage
from datamask_pipeline import schema
from datamask_pipeline.pipeline import Pipeline, PipelineConfig
from datamask_pipeline.stages import compare
from datamask_pipeline.storage import Ref
from resources import PipelineResource

PLOT = "differences.png"


def build(config: PipelineConfig) -> dg.Definitions:
    """The asset and its checks."""
    upstream = (
        "fineweb_mask",
        "selection_mask",
        "pretrained_model",
        "benchmark_results",
        "benchmark_answers",
    )

    @dg.asset(
        deps=[partitions.of_the_release(asset) for asset in upstream],
        partitions_def=partitions.RELEASES,
        group_name="report",
        kinds={"parquet", "matplotlib"},
        tags={"stage": "compare"},
        code_version=code_version(compare.VERSION, config.compare),
        config_schema=launchpad(config.compare),
        **COMMON,
    )
    def comparison_report(
        context: dg.AssetExecutionContext, pipeline: PipelineResource
    ) -> dg.MaterializeResult[None]:
        """All benchmark results of a release, with each arm's difference from the baseline."""
        return run_stage(context, pipeline, "compare", headline=_headline, plots=(PLOT,))

    return dg.Definitions(
        assets=[comparison_report],
        asset_checks=[
            asset_checks(
                "comparison_report",
                compare.STAGE,
                partitions.RELEASES,
                blocking=[columns, every_run_is_in_it, arms_answered_the_same_questions],
            ),
        ],
    )


def columns(artefact: Artefact) -> Verdict:
    """Columns and types are the record's."""
    return same_schema(artefact, schema.RESULTS)


def every_run_is_in_it(artefact: Artefact) -> Verdict:
    """No configured run is missing from the table."""
    wanted = sorted(artefact.pipeline.config.run_names())
    (found,) = artefact.query(f"SELECT list_sort(list(DISTINCT run)) FROM {artefact.sql(columns='run')}")
    return Verdict(found == wanted, {"runs": len(found), "missing": sorted(set(wanted) - set(found))})


def arms_answered_the_same_questions(artefact: Artefact) -> Verdict:
    """For each task, all models were asked one and the same question set."""
    (unequal,) = artefact.query(
        f"""
        SELECT count(*) FROM (
            SELECT task FROM {artefact.sql(columns="task, questions_digest, n, shots, headline")} WHERE headline
            GROUP BY task HAVING count(DISTINCT (questions_digest, n, shots)) > 1)
        """
    )
    return none_found(unequal, "tasks with several question sets")


def _headline(pipeline: Pipeline, ref: Ref, manifest: Mapping[str, Any]) -> Metadata:
    arms: list[dict[str, Any]] = manifest["metadata"]["arms"]
    lines = [
        "| arm | documents | tokens | objective | gap | bits per byte | mean of tasks |",
        "|---" * 7 + "|",
    ]
    headline: Metadata = {}
    for arm in arms:
        cells = [f"{arm['documents']:,}", f"{arm['tokens']:,}"]
        cells += [_number(arm[name]) for name in ("objective", "gap", "bits_per_byte", "mean")]
        lines.append(f"| {arm['arm']} | {' | '.join(cells)} |")
        for name in ("objective", "bits_per_byte", "mean"):
            if arm[name] is not None:
                headline[f"{name} {arm['arm']}"] = float(arm[name])
    return {"arms": dg.MetadataValue.md("\n".join(lines)), **headline}


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
