"""What Dagster checks and shows of the question sets that every model of a release is asked."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets.checks import Artefact, Shown, Verdict, rows_in_are_kept_plus_dropped
from assets.metadata import Metadata
from datamask_pipeline.evaluation.benchmarks import benchmarks_named
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Ref


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


SHOWN = {
    "benchmark_questions": Shown(
        blocking=(every_task_has_questions, rows_in_are_kept_plus_dropped), headline=_headline
    )
}
