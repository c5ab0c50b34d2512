"""Says where models are asked what the pool's documents were not held against. Reads manifests alone."""

from collections.abc import Iterator, Mapping
from typing import Any

from datamask_pipeline.evaluation.benchmarks import benchmarks_named
from datamask_pipeline.evaluation.config import LOCAL
from datamask_pipeline.pipeline.config import PipelineConfig
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.storage import Store

_REMEDY = "set pool.decontaminate.curated"


def not_held_against(config: PipelineConfig) -> Iterator[str]:
    """A line where these settings ask curated documents, and one where they ask tasks, that no document is held against."""
    asked, held = config.evaluate, config.pool.decontaminate
    if held is not None and held.questions is not None and asked.questions != LOCAL:
        tasks, against = (
            [benchmark.task for benchmark in benchmarks_named(names, where)]
            for names, where in (
                (asked.tasks, "evaluate.tasks"),
                (held.tasks, "pool.decontaminate.tasks"),
            )
        )
        if missing := [task for task in tasks if task not in against]:
            yield (
                f"documents are not held against {', '.join(missing)}, which evaluate.tasks asks, so models may have learnt "
                "its questions; name every task in pool.decontaminate.tasks, too"
            )
    if asked.curated is None:
        return
    if held is None or (held.curated, held.curated_column) != (asked.curated, asked.curated_column):
        yield (
            "documents are not held against evaluate.curated, so models may have learnt what they are asked; "
            f"{_REMEDY} to the same"
        )


def was_not_held_against(
    store: Store, questions: Mapping[str, Any] | None, pool: Mapping[str, Any] | None
) -> Iterator[str]:
    """The same of what a record has of a release.

    Args:
        store: The record.
        questions: Manifest of the release's questions; ``None``: there are none.
        pool: That of its candidates.
    """
    if questions is None or pool is None or (asked := questions["metadata"].get("curated")) is None:
        return
    against = dict(inputs_of(pool)).get("question_texts")
    held = None if against is None else store.manifest(against)["metadata"].get("curated")
    if held is None or held["digest"] != asked["digest"]:
        yield (
            f"documents were not held against the {asked['num_documents']:,} curated documents, so models may have learnt "
            f"what they were asked; {_REMEDY} to evaluate.curated"
        )
