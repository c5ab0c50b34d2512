"""What Dagster checks and shows of a model's benchmark scores, and of its answers to single questions."""

from assets.checks import Artefact, Shown, Verdict
from assets.metadata import Metadata, scalars
from datamask_pipeline.evaluation.benchmarks import benchmarks_named
from datamask_pipeline.stages import evaluate


def every_task_was_asked(artefact: Artefact) -> Verdict:
    """Each checkpoint has each task's headline number, out of at least one question."""
    wanted = [benchmark.task for benchmark in benchmarks_named(artefact.settings["tasks"])]
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
    return artefact.has_no(
        "values that are out of range or not finite",
        """
        NOT coalesce(isfinite(value), false) OR (headline AND value NOT BETWEEN 0 AND 1)
            OR (stderr IS NOT NULL AND NOT isfinite(stderr))
        """,
    )


def every_question_was_answered_once(artefact: Artefact) -> Verdict:
    """As many distinct questions per checkpoint and task as the results say, each with finite score and bits."""
    results = artefact.neighbour(evaluate.STAGE)
    asked, answered, wrong = artefact.query(
        f"""
        SELECT
            (SELECT sum(n)::BIGINT FROM {artefact.sql(results)} WHERE headline),
            count(DISTINCT (checkpoint, task, question_id)),
            count(*) FILTER (NOT coalesce(
                isfinite(value) AND isfinite(gold_bits) AND gold_bits >= 0 AND gold_bytes > 0
                AND coalesce(gold_probability BETWEEN 0 AND 1, true), false))
        FROM {artefact.sql()}
        """
    )
    return Verdict(
        asked == answered and wrong == 0, {"asked": asked, "answered": answered, "without a score": wrong}
    )


def _headline(artefact: Artefact) -> Metadata:
    scores: dict[str, float] = artefact.found["headline"]
    return {**scalars(scores, *scores), "mean of tasks": sum(scores.values()) / len(scores)}


SHOWN = {
    "benchmark_results": Shown(blocking=(every_task_was_asked, values_are_finite), headline=_headline),
    "benchmark_answers": Shown(blocking=(every_question_was_answered_once,)),
}
