"""What an artefact was made from that is another by now: its result is stale. Knows manifests; reads no rows."""

from collections.abc import Iterator

from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.pipeline.flow import FLOW
from datamask_pipeline.pipeline.stage import Stage
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.storage import Ref, Store


def stale(store: Store, ref: Ref) -> list[str]:
    """Why an artefact is stale, one line an input that has another version by now; none where it is not.

    An input whose present version would have given the same is followed to what that was made from in its turn. Nothing is
    said of settings: an artefact of other settings is not stale, but another.

    Args:
        store: The record.
        ref: The artefact, current or not.
    """
    return list(dict.fromkeys(_changed(store, ref, set())))


def _changed(store: Store, ref: Ref, seen: set[str]) -> Iterator[str]:
    if ref.location in seen:
        return
    seen.add(ref.location)
    manifest, stage = store.manifest(ref), _maker(ref.stage)
    for name, made_from in inputs_of(manifest):
        try:
            now = store.current(made_from.stage, made_from.key)
        except IntegrityError:
            continue  # whoever reads the damaged pointer tells of it
        if now is None:
            continue
        same = now.content_digest == made_from.content_digest
        if not same and stage is not None:
            identity = stage.identity(name.partition("/")[0])
            same = identity(store, now) == manifest["basis"]["inputs"][name]
        if same:
            yield from _changed(store, now, seen)
        else:
            made = store.manifest(now).get("written_at", "")
            yield f"{now.stage} of {now.key} was made again since, at {made} ({now.short})"


def _maker(artefact: str) -> Stage | None:
    """The stage that makes what the record keeps under that name; none for a probe."""
    return next((stage for stage in FLOW for made in stage.makes if made.artefact == artefact), None)
