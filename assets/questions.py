"""What Dagster checks and shows of the question sets that every model of a release is asked."""

from assets.checks import Artefact, Shown, Verdict, rows_in_are_kept_plus_dropped
from assets.metadata import Metadata, table
from datamask_pipeline.evaluation.benchmarks import benchmarks_named


def every_task_has_questions(artefact: Artefact) -> Verdict:
    """Each task of the settings has at least one question."""
    wanted = {benchmark.task for benchmark in benchmarks_named(artefact.settings["tasks"])}
    asked = {item["task"]: item["num_questions"] for item in artefact.found["sets"]}
    missing = sorted(task for task in wanted if asked.get(task, 0) < 1)
    return Verdict(not missing, {"tasks": len(asked), "without questions": missing})


def _headline(artefact: Artefact) -> Metadata:
    renamed = {"num_questions": "questions", "num_read": "rows read", "num_rejected": "rejected"}
    return {"question sets": table(artefact.found["sets"], "task", "source", **renamed)}


SHOWN = {
    "benchmark_questions": Shown(
        blocking=(every_task_has_questions, rows_in_are_kept_plus_dropped), headline=_headline
    )
}
