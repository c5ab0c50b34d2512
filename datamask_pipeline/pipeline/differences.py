"""In what record and configuration differ, and what a run would compute for it. Knows manifests; reads no data."""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from datamask_pipeline.errors import DataMaskError, IntegrityError
from datamask_pipeline.lineage import plain
from datamask_pipeline.pipeline.beside import shown_beside
from datamask_pipeline.pipeline.chain import Artefact, Pipeline
from datamask_pipeline.pipeline.config import split_run_name
from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.pipeline.stage import Stage
from datamask_pipeline.printable import cell
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.settings import Settings
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.forecast import Forecast, WouldComputeError
from datamask_pipeline.storage.ref import ref_of


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
    for name, before, now in _compared(found, settings, recorded):
        chosen_by_machine = getattr(settings, name, None) == "auto"
        if plain(now) != before and not chosen_by_machine:
            yield f"{found.section}.{name}: record {before}, configuration {plain(now)}"


def _compared(
    stage: Stage, settings: Settings, recorded: Mapping[str, Any]
) -> Iterable[tuple[str, Any, Any]]:
    if hasattr(stage.module, "compared"):
        compared: Iterable[tuple[str, Any, Any]] = stage.module.compared(settings, recorded)
        return compared
    configured = settings.result_config()
    return [(name, recorded[name], configured[name]) for name in sorted(configured.keys() & recorded.keys())]


def other_settings_of_report(pipeline: Pipeline, comparison: Mapping[str, Any]) -> dict[str, list[str]]:
    """The settings that differ, each with the crawls, arms or runs that were made so.

    Of all that the comparison was made from, back to the crawls, and of what its report shows beside it. Where its
    release goes on from another one, that other's settings are not looked at. Arms, architectures and seeds, and stages,
    that only one of record and configuration has, have a line too.

    Args:
        pipeline: The configuration.
        comparison: The comparison's manifest.
    """
    release = str(comparison["key"])
    members = {line: [release] for line in _other_members(pipeline, comparison)}
    beside = shown_beside(pipeline.store, comparison)
    return members | _other_settings_behind(pipeline, comparison, "compare", beside)


def other_settings_of_subset(pipeline: Pipeline, subset: Mapping[str, Any]) -> dict[str, list[str]]:
    """The settings that differ of all that a subset was made from, each with the crawls or arms that were made so.

    What is asked to be withdrawn and what documents are held against are among them, and stages that only one of record
    and configuration has.

    Args:
        pipeline: The configuration.
        subset: The subset's manifest.
    """
    return _other_settings_behind(pipeline, subset, "materialise")


def other_settings_of_masks(pipeline: Pipeline, masks: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The same of all that some masks were made from, by the masks' manifests."""
    found: dict[str, dict[str, None]] = {}
    for mask in masks:
        for line, made in _other_settings_behind(pipeline, mask, "select").items():
            found.setdefault(line, {}).update(dict.fromkeys(made))
    return {line: list(made) for line, made in found.items()}


def _other_settings_behind(
    pipeline: Pipeline, made: Mapping[str, Any], last: str, beside: Iterable[Ref] = ()
) -> dict[str, list[str]]:
    """The settings that differ, each with what was made so, and the stages up to the last that only one side has.

    What was made with other settings since and came out the same, as a pool of which a withdrawal takes nothing, is looked
    at in place of what was read, where less differs so: a run makes nothing of it anew.
    """
    beside = [*beside]
    as_made = _differing(pipeline, made, last, _behind(pipeline.store, made, beside))
    if not as_made:
        return {}
    as_current = _differing(pipeline, made, last, _behind(pipeline.store, made, beside, or_current=True))
    return min(as_made, as_current, key=len)


def _differing(
    pipeline: Pipeline,
    made: Mapping[str, Any],
    last: str,
    behind: Iterable[tuple[Ref, Mapping[str, Any] | IntegrityError]],
) -> dict[str, list[str]]:
    found: dict[str, dict[str, None]] = {}
    there: set[str] = set()
    for ref, manifest in behind:
        stage = FLOW.keeper(ref.stage)
        if stage is None:
            continue  # a probe, which follows from its scorer
        there.add(stage.name)
        member = ref.key.partition("/")[2] or ref.key
        if isinstance(manifest, IntegrityError):
            lines = [f"{stage.name}: its settings are not known: {manifest}"]
        else:
            recorded = manifest["basis"]["config"]
            lines = [*other_settings(pipeline, stage.name, ref.key, recorded)]
            if stage.uses == "source":
                lines += _other_source(pipeline, recorded.get("source", {}))
            lines += _otherwise_asked(pipeline, stage, manifest["basis"]["inputs"])
        for line in lines:
            found.setdefault(line, {})[member] = None
    wanted = {stage.name for stage in pipeline.config.stages(last)}
    for name in (stage.name for stage in FLOW.until(last)):
        if (name in wanted) != (name in there):
            line = f"stage {name}: only in the {'record' if name in there else 'configuration'}"
            found[line] = {str(made["key"]): None}
    return {line: list(of) for line, of in found.items()}


def _other_members(pipeline: Pipeline, comparison: Mapping[str, Any]) -> Iterator[str]:
    """Arms, architectures and seeds that only one of configuration and comparison has."""
    compared: dict[str, list[str]] = {}
    for name in comparison["inputs"]:
        what, _, member = name.partition("/")
        compared.setdefault(what, []).append(member)
    runs = [split_run_name(run) for run in compared.get("results", ())]
    config = pipeline.config
    for what, recorded, configured in (
        ("arms", compared.get("subsets", []), config.arms),
        ("architectures", [architecture for _, architecture, _ in runs], config.architectures),
        ("seeds", sorted(seed for *_, seed in runs), config.seeds),
    ):
        for place, names, others in (
            ("record", recorded, configured),
            ("configuration", configured, recorded),
        ):
            if only := [str(name) for name in dict.fromkeys(names) if name not in others]:
                yield f"{what}: {', '.join(only)} only in the {place}"


def _other_source(pipeline: Pipeline, recorded: Mapping[str, Any]) -> Iterator[str]:
    configured: dict[str, Any] = plain(pipeline.source.result_config())
    for name in sorted(configured.keys() & recorded.keys()):
        if configured[name] != recorded[name]:
            yield f"source.options.{name}: record {recorded[name]}, configuration {configured[name]}"


def _otherwise_asked(pipeline: Pipeline, stage: Stage, inputs: Mapping[str, Any]) -> Iterator[str]:
    """What a stage reads from files and lists that the configuration names, where the record's was made from others."""
    settings = getattr(pipeline.config, stage.section, None)
    if not hasattr(stage.module, "asked") or stage.module.is_off(settings):
        return
    try:
        for name, of, digest in stage.module.asked(settings):
            if inputs.get(name) != digest:
                yield f"{of}: other in the record than in the configuration"
    except DataMaskError as error:
        yield f"stage {stage.name}: {error}"


def _behind(
    store: Store, made: Mapping[str, Any], beside: Iterable[Ref], *, or_current: bool = False
) -> Iterator[tuple[Ref, Mapping[str, Any] | IntegrityError]]:
    """What an artefact was made from, itself first, then what is shown beside it; with what is wrong with a manifest.

    With `or_current`, the current version takes the place of one of equal content.
    """
    release = str(made["key"]).partition("/")[0]
    waiting, seen = [ref_of(made), *beside], set[str]()
    while waiting:
        ref = waiting.pop(0)
        stage = FLOW.keeper(ref.stage)
        of_another = stage is not None and stage.scope != "crawl" and ref.key.partition("/")[0] != release
        if ref.location in seen or of_another:
            continue
        seen.add(ref.location)
        try:
            manifest = store.manifest_at(ref.location)
        except IntegrityError as error:
            yield ref, error
            continue
        yield ref, manifest
        for _, read in inputs_of(manifest):
            now = store.current(read.stage, read.key) if or_current else None
            waiting.append(now if now is not None and now.content_digest == read.content_digest else read)


@dataclasses.dataclass(frozen=True)
class Step:
    """What a run would compute.

    Attributes:
        release: The release that it is looked at for.
        stage: The stage.
        key: The key.
        why: Why it is computed.
        counted_in: The release before it of which it is a step already, as of a crawl that both have: it is made once.
    """

    release: str
    stage: str
    key: str
    why: list[str]
    counted_in: str | None


@dataclasses.dataclass(frozen=True)
class SetBack:
    """What a run would not compute, as it stands in the record, but make current again in place of another version.

    Attributes:
        ref: The artefact.
        why: How the version that is current now differs.
    """

    ref: Ref
    why: list[str]


def set_back(pipeline: Pipeline) -> list[SetBack]:
    """All of it that was come by, of the releases whose steps were looked at.

    Args:
        pipeline: Over the `storage.forecast.Forecast` whose steps were.
    """
    store = pipeline.store
    assert isinstance(store, Forecast), "only what is looked at tells"
    return [SetBack(ref, why) for ref, why in store.repointed()]


def set_back_line(artefact: str, key: str, why: Iterable[str]) -> str:
    """What a person reads of it."""
    return f"{cell(artefact, 14)}{cell(key, 44)}made before, to be current again: {'; '.join(why)}"


def steps_of_releases(
    pipeline: Pipeline, releases: Iterable[str], until: str | None = None, standing: Collection[str] = ()
) -> Iterator[tuple[str, list[Step]]]:
    """Each release with its steps as `steps_to_compute`; arguments as there."""
    counted: dict[tuple[str, str], str] = {}
    new: dict[Artefact, str] = {}
    for release in releases:
        steps = [
            Step(release, stage, key, why, counted.get((stage, key)))
            for stage, key, why in steps_to_compute(pipeline, release, until, new, standing)
        ]
        counted |= {(step.stage, step.key): release for step in steps if step.counted_in is None}
        yield release, steps


def steps_to_compute(
    pipeline: Pipeline,
    release: str,
    until: str | None,
    new: dict[Artefact, str],
    standing: Collection[str] = (),
) -> Iterator[tuple[str, str, list[str]]]:
    """The steps that a run would compute: stage, key and why. Equal results may spare those that wait for them.

    Args:
        pipeline: The configuration, over a record that is a `storage.forecast.Forecast`.
        release: The release.
        until: The last stage; none is every one.
        new: Artefacts that would be made before, of other releases too, by the step that makes each; those of these steps
            are added.
        standing: Crawls that are taken as they stand in the record, whatever the source has of them.
    """
    for name, key, call in pipeline.steps(release, until):
        stage = FLOW.stage(name)
        if stage.scope == "crawl" and key in standing:
            continue
        of = (pipeline.inputs(stage, key) | pipeline.held_inputs(stage, key)).values()
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
