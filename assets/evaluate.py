"""The assets of evaluation: a model's scores on the benchmarks, and its answers to single questions."""

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from assets import partitions
from assets.checks import Artefact, Verdict, asset_checks, none_found, same_schema
from assets.launchpad import code_version, launchpad
from assets.metadata import Metadata, scalars
from assets.step import COMMON, COMPUTE_POOL, run_stages
from datamask_pipeline import schema
from datamask_pipeline.evaluation.benchmarks import benchmarks_named
from datamask_pipeline.pipeline import Pipeline, PipelineConfig
from datamask_pipeline.stages import evaluate
from datamask_pipeline.storage import Ref
from resources import PipelineResource


def build(config: PipelineConfig) -> dg.Definitions:
    """The assets and their checks."""
    run_partitions = partitions.release_runs(config)
    common = {
        "group_name": "models",
        "owners": COMMON["owners"],
        "code_version": code_version(evaluate.VERSION, config.evaluate),
        "kinds": {"huggingface", "parquet"},
        "partitions_def": run_partitions,
        "tags": {"stage": "evaluate"},
        "deps": [
            "pretrained_model",
            partitions.of_the_release("tokenizer"),
            partitions.of_the_release("benchmark_questions"),
        ],
    }

    @dg.multi_asset(
        name="evaluate",
        specs=[
            dg.AssetSpec(
                "benchmark_results",
                description="Arm, architecture, seed, checkpoint, task, metric, value, stderr and n of a model.",
                **common,
            ),
            dg.AssetSpec(
                "benchmark_answers",
                description="A model's score on every single question: two models are compared in pairs.",
                **common,
            ),
        ],
        partitions_def=run_partitions,
        config_schema=launchpad(config.evaluate),
        pool=COMPUTE_POOL,
        retry_policy=COMMON["retry_policy"],
        backfill_policy=COMMON["backfill_policy"],
    )
    def evaluate_model(
        context: dg.AssetExecutionContext, pipeline: PipelineResource
    ) -> Iterator[dg.MaterializeResult[None]]:
        shown = {"benchmark_results": (_headline, ()), "benchmark_answers": (None, ())}
        yield from run_stages(context, pipeline, "evaluate", shown)

    return dg.Definitions(
        assets=[evaluate_model],
        asset_checks=[
            asset_checks(
                "benchmark_results",
                evaluate.STAGE,
                run_partitions,
                blocking=[columns, every_task_was_asked, values_are_finite],
            ),
            asset_checks(
                "benchmark_answers",
                evaluate.ANSWERS_STAGE,
                run_partitions,
                blocking=[answer_columns, every_question_was_answered_once],
            ),
        ],
    )


def columns(artefact: Artefact) -> Verdict:
    """Columns and types are the record's."""
    return same_schema(artefact, schema.RESULTS)


def every_task_was_asked(artefact: Artefact) -> Verdict:
    """Each checkpoint has each task's headline number, out of at least one question."""
    wanted = [benchmark.task for benchmark in benchmarks_named(artefact.manifest["basis"]["config"]["tasks"])]
    checkpoints, answered, tasks = artefact.query(
        f"""
        SELECT count(DISTINCT checkpoint), count(DISTINCT (checkpoint, task)) FILTER (headline AND n > 0),
            list_sort(list(DISTINCT task))
        FROM {artefact.sql()}
        """
    )
    return Verdict(
        checkpoints > 0 and answered == checkpoints * len(wanted) and tasks == sorted(wanted),
        {"tasks": len(tasks), "checkpoints": checkpoints, "missing": sorted(set(wanted) - set(tasks))},
    )


def values_are_finite(artefact: Artefact) -> Verdict:
    """Headline numbers are shares in 0..1, every value is finite, and a standard error is finite where stated."""
    wrong = artefact.count(
        """
        NOT coalesce(isfinite(value), false) OR (headline AND value NOT BETWEEN 0 AND 1)
            OR (stderr IS NOT NULL AND NOT isfinite(stderr))
        """
    )
    return none_found(wrong, "values that are none")


def answer_columns(artefact: Artefact) -> Verdict:
    """Columns and types are the record's."""
    return same_schema(artefact, schema.ANSWERS)


def every_question_was_answered_once(artefact: Artefact) -> Verdict:
    """As many distinct questions per checkpoint and task as the results say, each with a finite score."""
    results = artefact.neighbour(evaluate.STAGE)
    asked, answered, wrong = artefact.query(
        f"""
        SELECT
            (SELECT sum(n)::BIGINT FROM {artefact.sql(results)} WHERE headline),
            count(DISTINCT (checkpoint, task, question_id)),
            count(*) FILTER (NOT coalesce(isfinite(value), false))
        FROM {artefact.sql()}
        """
    )
    return Verdict(
        asked == answered and wrong == 0, {"asked": asked, "answered": answered, "without a score": wrong}
    )


def _headline(pipeline: Pipeline, ref: Ref, manifest: Mapping[str, Any]) -> Metadata:
    scores: dict[str, float] = manifest["metadata"]["headline"]
    return {**scalars(scores, *scores), "mean of tasks": sum(scores.values()) / len(scores)}
