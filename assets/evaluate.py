"""What Dagster checks and shows of a model's benchmark scores, and of its answers to single questions."""

from assets.checks import Artefact, Shown, Verdict
from assets.metadata import Metadata, scalars
from datamask_pipeline.evaluation.benchmarks import benchmarks_named
from datamask_pipeline.schema import OF_DOCUMENTS
from datamask_pipeline.stages import evaluate
from datamask_pipeline.stages import pool as pool_stage
from datamask_pipeline.stages import questions as questions_stage


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
    questions = f"task NOT IN {OF_DOCUMENTS}"
    asked, answered, wrong = artefact.query(
        f"""
        SELECT
            (SELECT sum(n)::BIGINT FROM {artefact.sql(results)} WHERE headline),
            count(DISTINCT (checkpoint, task, question_id)) FILTER ({questions}),
            count(*) FILTER ({questions} AND NOT coalesce(
                isfinite(value) AND isfinite(gold_bits) AND gold_bits >= 0 AND gold_bytes > 0
                AND coalesce(gold_probability BETWEEN 0 AND 1, true), false))
        FROM {artefact.sql()}
        """
    )
    return Verdict(
        asked == answered and wrong == 0, {"asked": asked, "answered": answered, "without a score": wrong}
    )


def every_document_was_read_once(artefact: Artefact) -> Verdict:
    """Each checkpoint has all held-out and all curated documents, each with bits and without a score."""
    pool = artefact.neighbour(pool_stage.STAGE, artefact.release)
    questions = artefact.neighbour(questions_stage.STAGE, artefact.release)
    about = artefact.pipeline.store.manifest(questions)["metadata"].get("curated", {"num_documents": 0})
    documents = f"task IN {OF_DOCUMENTS}"
    checkpoints, held_out, distinct, read, wrong = artefact.query(
        f"""
        SELECT count(DISTINCT checkpoint), (SELECT count(*) FROM {artefact.sql(pool)} WHERE validation),
            count(DISTINCT (checkpoint, task, question_id)) FILTER ({documents}), count(*) FILTER ({documents}),
            count(*) FILTER ({documents} AND NOT coalesce(
                value IS NULL AND isfinite(gold_bits) AND gold_bits > 0 AND gold_bytes > 0, false))
        FROM {artefact.sql()}
        """
    )
    wanted = checkpoints * (held_out + about["num_documents"])
    return Verdict(
        wanted == distinct == read and wrong == 0,
        {"wanted": wanted, "read": read, "without bits": wrong},
    )


def _headline(artefact: Artefact) -> Metadata:
    scores: dict[str, float] = artefact.found["headline"]
    return {**scalars(scores, *scores), "mean of tasks": sum(scores.values()) / len(scores)}


SHOWN = {
    "benchmark_results": Shown(blocking=(every_task_was_asked, values_are_finite), headline=_headline),
    "benchmark_answers": Shown(blocking=(every_question_was_answered_once, every_document_was_read_once)),
}
