"""What a run would compute, why and for about how long; beside it what `stale` says. Reads manifests; no data.

What would be computed is what `datamask run --dry-run` says; how long, what it took before.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from datamask_pipeline.audit.stale import superseded
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.pipeline.differences import steps_to_compute
from datamask_pipeline.pipeline.estimate import duration, estimate


def status(pipeline: Pipeline, releases: Sequence[str]) -> dict[str, Any]:
    """What is stale.

    Args:
        pipeline: The configuration, over a record that is a `storage.forecast.Forecast`.
        releases: The releases that are to be current.

    Returns:
        ``is_current``; ``steps`` to compute: ``release``, ``stage``, ``key``, ``why`` and ``seconds`` (null: nothing like
        it was made yet); ``seconds`` of all that are known; ``superseded``: artefacts of the whole record, configured or
        not, that were made from something else than what is current now: ``asset``, ``key``, ``location``, ``why``.
    """
    # As the record stands, which is what `release` and `report` go by: the forecast moves what is current.
    found = list(superseded(pipeline.store))
    steps = [
        {
            "release": release,
            "stage": stage,
            "key": key,
            "why": why,
            "seconds": estimate(pipeline, stage, key).seconds,
        }
        for release in releases
        for stage, key, why in steps_to_compute(pipeline, release)
    ]
    return {
        "is_current": not steps and not found,
        "steps": steps,
        "seconds": sum(step["seconds"] or 0.0 for step in steps),
        "superseded": found,
    }


def status_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """One line a step and a superseded artefact."""
    for step in found["steps"]:
        yield f"{step['stage']:<12}{step['key']:<44}{duration(step['seconds']):>10}  {'; '.join(step['why'])}"
    for each in found["superseded"]:
        yield f"superseded: {each['asset']} of {each['key']} ({each['location']}): {'; '.join(each['why'])}"
    if found["is_current"]:
        yield "all is current"
    else:
        unknown = sum(step["seconds"] is None for step in found["steps"])
        more = f" and {unknown} of unknown length" if unknown else ""
        yield (
            f"{len(found['steps'])} steps to compute, {duration(found['seconds'])} by what they took before{more}; "
            f"{len(found['superseded'])} artefacts stand on what was superseded"
        )
