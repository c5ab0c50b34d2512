"""In what record and configuration differ, and what a run would compute for it. Knows manifests; reads no data."""

from collections.abc import Iterator, Mapping
from typing import Any

from datamask_pipeline.lineage import plain
from datamask_pipeline.pipeline.chain import Artefact, Pipeline
from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.storage.forecast import WouldComputeError


def other_settings(pipeline: Pipeline, stage: str, key: str, recorded: Mapping[str, Any]) -> Iterator[str]:
    """The settings that differ, such as ``select.lamb: record 0.9, configuration 0.5``; none for an unknown arm.

    Args:
        pipeline: The configuration.
        stage: The stage that made the artefact.
        key: The artefact's key.
        recorded: The settings in the artefact's manifest.
    """
    found = FLOW.stage(stage)
    member = key.partition("/")[2] if found.varies else None
    settings = pipeline.config.settings(found).get(member)
    if settings is None:
        return
    configured: dict[str, Any] = plain(settings.result_config())
    for name in sorted(configured.keys() & recorded.keys()):
        chosen_by_machine = getattr(settings, name, None) == "auto"
        if configured[name] != recorded[name] and not chosen_by_machine:
            yield f"{found.section}.{name}: record {recorded[name]}, configuration {configured[name]}"


def other_settings_of_report(pipeline: Pipeline, comparison: Mapping[str, Any]) -> dict[str, list[str]]:
    """The settings that differ, each with the arms or runs of a comparison that were made so.

    Args:
        pipeline: The configuration.
        comparison: The comparison's manifest.
    """
    found: dict[str, dict[str, None]] = {}
    reads = FLOW.stage("compare").reads
    for line in other_settings(pipeline, "compare", comparison["key"], comparison["basis"]["config"]):
        found[line] = {comparison["key"]: None}
    for name, ref in comparison["inputs"].items():
        what, _, member = name.partition("/")
        if not isinstance(ref, Mapping):  # a digest of what is no artefact
            continue
        recorded = pipeline.store.manifest_at(ref["location"])["basis"]["config"]
        for line in other_settings(pipeline, FLOW.maker(reads[what])[0].name, ref["key"], recorded):
            found.setdefault(line, {})[member] = None
    return {line: list(made) for line, made in found.items()}


def steps_to_compute(
    pipeline: Pipeline, release: str, until: str | None = None
) -> Iterator[tuple[str, str, list[str]]]:
    """The steps that a run would compute: stage, key and why. Equal results may spare those that wait for them.

    Args:
        pipeline: The configuration, over a record that is a `storage.forecast.Forecast`.
        release: The release.
        until: The last stage; every one by default.
    """
    new: dict[Artefact, str] = {}
    for name, key, call in pipeline.steps(release, until):
        stage = FLOW.stage(name)
        of = pipeline.inputs(stage, key).values()
        read = {artefact for one in of for artefact in (one.values() if isinstance(one, dict) else [one])}
        waits_for = dict.fromkeys(maker for artefact, maker in new.items() if artefact in read)
        why = [f"after {', '.join(waits_for)}"] if waits_for else []
        if not why:
            try:
                call()
            except WouldComputeError as found:
                made = {output.artefact for output in stage.makes}
                why = found.why if found.stage in made else [str(found)]
        if why:
            new |= {(output.artefact, key): name for output in stage.makes}
            yield name, key, why
