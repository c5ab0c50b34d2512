"""What of a record is stale: what a run would compute, why and for about how long; and what stands on something superseded.

What would be computed is what `datamask run --dry-run` says; how long, what it took before. Reads manifests; no data.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.pipeline import FLOW, Pipeline
from datamask_pipeline.pipeline.differences import steps_to_compute
from datamask_pipeline.pipeline.stage import Output, Stage
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.changes import current_manifest


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
    steps = [
        {
            "release": release,
            "stage": stage,
            "key": key,
            "why": why,
            "seconds": _seconds(pipeline.store, stage, key),
        }
        for release in releases
        for stage, key, why in steps_to_compute(pipeline, release)
    ]
    found = list(superseded(pipeline.store))
    return {
        "is_current": not steps and not found,
        "steps": steps,
        "seconds": sum(step["seconds"] or 0.0 for step in steps),
        "superseded": found,
    }


def superseded(store: Store) -> Iterator[dict[str, Any]]:
    """Current artefacts made from something that is not current, or that stands on such, in the flow's order."""
    stale: set[tuple[str, str]] = set()
    for stage in FLOW:
        for output in stage.makes:
            for key in store.keys(output.artefact):
                manifest = current_manifest(store, output.artefact, key)
                why = (
                    ["its manifest is damaged"]
                    if manifest is None
                    else list(_why(store, stage, manifest, stale))
                )
                if why:
                    stale.add((output.artefact, key))
                    yield _told(output, key, manifest, why)


def status_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """One line a step and a superseded artefact."""
    for step in found["steps"]:
        yield f"{step['stage']:<12}{step['key']:<44}{_duration(step['seconds']):>10}  {'; '.join(step['why'])}"
    for each in found["superseded"]:
        yield f"superseded: {each['asset']} of {each['key']} ({each['location']}): {'; '.join(each['why'])}"
    if found["is_current"]:
        yield "all is current"
    else:
        unknown = sum(step["seconds"] is None for step in found["steps"])
        more = f" and {unknown} of unknown length" if unknown else ""
        yield (
            f"{len(found['steps'])} steps to compute, {_duration(found['seconds'])} by what they took before{more}; "
            f"{len(found['superseded'])} artefacts stand on what was superseded"
        )


def _why(
    store: Store, stage: Stage, manifest: Mapping[str, Any], stale: set[tuple[str, str]]
) -> Iterator[str]:
    for name, ref in inputs_of(manifest):
        argument = name.partition("/")[0]
        if argument not in stage.reads:  # read by an earlier version of the stage
            continue
        if (ref.stage, ref.key) in stale:
            yield f"{name} is itself superseded"
            continue
        try:
            now = store.current(ref.stage, ref.key)
        except IntegrityError:
            now = None
        if now is None:
            yield f"{name} ({ref.location}) is no longer there"
        elif now != ref and manifest["basis"]["inputs"].get(name) != stage.identity(argument)(store, now):
            yield f"made from {name} {ref.short}, which is {now.short} now"


def _told(output: Output, key: str, manifest: Mapping[str, Any] | None, why: list[str]) -> dict[str, Any]:
    location = None if manifest is None else manifest["location"]
    return {"asset": output.asset, "key": key, "location": location, "why": why}


def _seconds(store: Store, stage: str, key: str) -> float | None:
    """What the step took before; or else what others of its stage took, the middle one."""
    artefact = FLOW.stage(stage).makes[0].artefact
    before = current_manifest(store, artefact, key)
    if before is not None:
        return float(before["wall_seconds"])
    others = [current_manifest(store, artefact, other) for other in store.keys(artefact)]
    took = [float(manifest["wall_seconds"]) for manifest in others if manifest is not None]
    return statistics.median(took) if took else None


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
