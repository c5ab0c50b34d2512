"""What a run would compute, why and for about how long, or make current again, and which releases it would refuse; beside it
what `stale` says.

Reads manifests; no data.

What would be computed is what `datamask run --dry-run` says; how long, what it took before.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from datamask_pipeline.audit.stale import superseded
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.pipeline.differences import set_back, set_back_line, steps_of_releases
from datamask_pipeline.pipeline.estimate import duration, estimate
from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.printable import cell


def status(pipeline: Pipeline, releases: Sequence[str], until: str | None = None) -> dict[str, Any]:
    """What is stale.

    Args:
        pipeline: The configuration, over a record that is a `storage.forecast.Forecast`.
        releases: The releases that are to be current.
        until: The last stage that is to be; every one by default.

    Returns:
        ``is_current``; ``refused``: releases of which `datamask run` would make nothing, as a crawl is not there or
        cannot be read: ``release`` and ``why``;
        ``steps`` to compute: ``release``, ``stage``, ``key``, ``why``, ``seconds`` (null: nothing like
        it was made yet) and ``counted_in`` (the release before, of which it is a step too; null: there is none), which
        makes it no further step in ``num_steps`` and ``seconds``, of all that are known; ``set_back``: what stands in the
        record as it is configured, while another version is current: ``artefact``, ``key``, ``location`` and ``why``, how
        the current one differs; ``superseded``: artefacts of
        the whole record, configured or not, that were made from something else than what is current now: ``asset``,
        ``key``, ``location``, ``why``.

    Raises:
        DataMaskError: as `Pipeline.check`, of what is wrong for every release.
    """
    # As the record stands, which is what `release` and `report` go by: the forecast moves what is current.
    looked_at = FLOW.until(until)
    found = [each for each in superseded(pipeline.store) if FLOW.maker(each["asset"])[0] in looked_at]
    refused = pipeline.check_each(until, releases)
    whole = [name for name in releases if name not in refused]
    steps = [
        {
            "release": release,
            "stage": step.stage,
            "key": step.key,
            "why": step.why,
            "seconds": estimate(pipeline, step.stage, step.key).seconds,
            "counted_in": step.counted_in,
        }
        for release, of_release in steps_of_releases(pipeline, whole, until)
        for step in of_release
    ]
    again = [
        {"artefact": each.ref.stage, "key": each.ref.key, "location": each.ref.location, "why": each.why}
        for each in set_back(pipeline)
    ]
    distinct = [step for step in steps if step["counted_in"] is None]
    return {
        "is_current": not steps and not again and not found and not refused,
        "refused": [{"release": name, "why": str(error)} for name, error in refused.items()],
        "steps": steps,
        "num_steps": len(distinct),
        "seconds": sum(step["seconds"] or 0.0 for step in distinct),
        "set_back": again,
        "superseded": found,
    }


def status_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """One line a release that is refused, a step, what is to be current again and a superseded artefact."""
    for each in found["refused"]:
        yield f"release {each['release']} would fail by `datamask run`: {each['why']}"
    for step in found["steps"]:
        again = step["counted_in"] is not None
        seconds = "" if again else duration(step["seconds"])
        why = f"counted above, for {step['counted_in']}" if again else "; ".join(step["why"])
        yield f"{cell(step['stage'], 14)}{cell(step['key'], 44)}{seconds:>10}  {why}"
    for each in found["set_back"]:
        yield set_back_line(each["artefact"], each["key"], each["why"])
    for each in found["superseded"]:
        yield f"superseded: {each['asset']} of {each['key']} ({each['location']}): {'; '.join(each['why'])}"
    if found["is_current"]:
        yield "all is current"
    else:
        unknown = sum(step["seconds"] is None and step["counted_in"] is None for step in found["steps"])
        more = f" and {unknown} of unknown length" if unknown else ""
        others = f"{len(found['set_back'])} artefacts to be current again; " if found["set_back"] else ""
        yield (
            f"{found['num_steps']} steps to compute, {duration(found['seconds'])} by what they took before{more}; "
            f"{others}{len(found['superseded'])} artefacts stand on what was superseded"
        )
