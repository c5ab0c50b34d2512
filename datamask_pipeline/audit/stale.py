"""What an artefact was made from that is another by now: its result is stale, and why. Knows manifests; reads no rows."""

from collections.abc import Iterator
from typing import Any, Final

from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.changes import current_manifest
from datamask_pipeline.storage.ref import ref_of
from datamask_pipeline.storage.releases import is_retired

#: How a line begins that is of a release that the artefact's own goes on from.
_THROUGH: Final = "it goes on from "
#: Why artefacts are stale, by location: each is looked at once. Beside each line, the artefact that read what it tells of.
Known = dict[str, list[tuple[Ref, str]]]


def stale(store: Store, ref: Ref, known: Known | None = None) -> list[str]:
    """Why an artefact is stale, one line an input that is another by now, or is gone; none where it is not.

    An input whose present version would have given the same is followed to what that was made from in its turn. Nothing is
    said of settings: an artefact of other settings is not stale, but another.

    Args:
        store: The record.
        ref: The artefact, current or not.
        known: What is known of others; what is found is added.
    """
    return list(dict.fromkeys(line for _, line in _known(store, ref, {} if known is None else known)))


def retired_behind(store: Store, ref: Ref) -> list[str]:
    """The retired releases that would have to be made anew for an artefact not to be stale, sorted: no run does that."""
    stages = {each: FLOW.keeper(each.stage) for each, _ in _known(store, ref, {})}
    found = {each.key.partition("/")[0] for each, stage in stages.items() if stage and stage.scope != "crawl"}
    return sorted(release for release in found if is_retired(store, release))


def superseded(store: Store) -> Iterator[dict[str, Any]]:
    """Current artefacts of the whole record that are stale or damaged, in the flow's order.

    Yields:
        ``asset``, ``key``, ``location`` (null: its manifest is damaged) and ``why``.
    """
    known: Known = {}
    for output in (output for stage in FLOW for output in stage.makes):
        for key in store.keys(output.artefact):
            manifest = current_manifest(store, output.artefact, key)
            why = ["its manifest is damaged"] if manifest is None else stale(store, ref_of(manifest), known)
            if why:
                location = None if manifest is None else manifest["location"]
                yield {"asset": output.asset, "key": key, "location": location, "why": why}


def _known(store: Store, ref: Ref, known: Known) -> list[tuple[Ref, str]]:
    if ref.location not in known:
        known[ref.location] = list(dict.fromkeys(_changed(store, ref, known)))
    return known[ref.location]


def _through(store: Store, held: Ref, why: list[tuple[Ref, str]]) -> Iterator[tuple[Ref, str]]:
    """Why what is gone on from is stale, each line with what that is, once."""
    release = held.key.partition("/")[0]
    retired = f", retired (`datamask retire {release} --undo`)" if is_retired(store, release) else ""
    for ref, line in why:
        told = line if line.startswith(_THROUGH) else f"{_THROUGH}{release}{retired}: {line}"
        yield ref, told


def _changed(store: Store, ref: Ref, known: Known) -> Iterator[tuple[Ref, str]]:
    manifest, stage = store.manifest(ref), FLOW.keeper(ref.stage)
    for name, made_from in inputs_of(manifest):
        argument = name.partition("/")[0]
        if stage is not None and argument not in {*stage.reads, *stage.held}:
            continue  # read by an earlier version of the stage
        what = f"{made_from.stage} of {made_from.key}"
        try:
            now = store.current(made_from.stage, made_from.key)
            if now is None:
                yield ref, f"{what} is no longer there"
                continue
            same = now.content_digest == made_from.content_digest
            if not same and stage is not None:
                same = stage.identity(argument)(store, now) == manifest["basis"]["inputs"][name]
            if same and stage is not None and argument in stage.held:
                yield from _through(store, now, _known(store, now, known))
            elif same:
                yield from _known(store, now, known)
            else:
                other = store.manifest(now)
                # With earlier settings, what was made before is current again.
                since = other["written_at_ns"] > manifest["written_at_ns"]
                how = "was made again since," if since else "is another one by now, made"
                yield ref, f"{what} {how} at {other.get('written_at', '')} (fingerprint {now.short})"
        except IntegrityError:
            yield ref, f"{what} is damaged"
