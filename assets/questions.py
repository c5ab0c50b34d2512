"""The asset of the question sets that every model of a release is asked."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets import partitions
from assets.checks import Artefact, Verdict, asset_checks, rows_in_are_kept_plus_dropped
from assets.launchpad import code_version, launchpad
from assets.metadata import Metadata
from assets.step import COMMON, run_stage
from datamask_pipeline.evaluation.benchmarks import benchmarks_named
from datamask_pipeline.pipeline import Pipeline, PipelineConfig
from datamask_pipeline.stages import questions
from datamask_pipeline.storage import Ref
from resources import PipelineResource


def build(config: PipelineConfig) -> dg.Definitions:
    """The asset and its checks."""

    @dg.asset(
        deps=["candidate_documents", partitions.of_every_crawl("crawl_documents")],
        partitions_def=partitions.RELEASES,
        group_name="releases",
        kinds={"huggingface"},
        tags={"stage": "questions"},
        code_version=code_version(questions.VERSION, config.evaluate),
        config_schema=launchpad(config.evaluate),
        **COMMON,
    )
    def benchmark_questions(
        context: dg.AssetExecutionContext, pipeline: PipelineResource
    ) -> dg.MaterializeResult[None]:
        """The benchmarks' question sets, built once for all models of a release."""
        return run_stage(context, pipeline, "questions", headline=_headline)

    return dg.Definitions(
        assets=[benchmark_questions],
        asset_checks=[
            asset_checks(
                "benchmark_questions",
                questions.STAGE,
                partitions.RELEASES,
                blocking=[every_task_has_questions, rows_in_are_kept_plus_dropped],
            ),
        ],
    )


def every_task_has_questions(artefact: Artefact) -> Verdict:
    """Each task of the settings has at least one question."""
    wanted = {benchmark.task for benchmark in benchmarks_named(artefact.manifest["basis"]["config"]["tasks"])}
    asked = {item["task"]: item["num_questions"] for item in artefact.manifest["metadata"]["sets"]}
    missing = sorted(task for task in wanted if asked.get(task, 0) < 1)
    return Verdict(not missing, {"tasks": len(asked), "without questions": missing})


def _headline(pipeline: Pipeline, ref: Ref, manifest: Mapping[str, Any]) -> Metadata:
    lines = ["| task | source | questions | rows read | rejected |", "|---|---|---|---|---|"]
    lines += [
        f"| {item['task']} | {item['source']} | {item['num_questions']} | {item['num_read']} | {item['num_rejected']} |"
        for item in manifest["metadata"]["sets"]
    ]
    return {"question sets": dg.MetadataValue.md("\n".join(lines))}
