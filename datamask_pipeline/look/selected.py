"""The versions that a selection was made from, so that all that is shown of it fits together. Knows no row and no page."""

import dataclasses
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from datamask_pipeline.audit.stale import stale
from datamask_pipeline.errors import ConfigurationError, UnknownNameError
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.releases import refusal_without


@dataclasses.dataclass(frozen=True)
class Selected:
    """One arm's current selection, and the versions behind it, superseded ones included.

    Attributes:
        store: The record.
        selection: The mask.
    """

    store: Store
    selection: Ref

    @property
    def release(self) -> str:
        return self.selection.key.split("/", 1)[0]

    @property
    def arm(self) -> str:
        return self.selection.key.split("/", 1)[1]

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        return self.store.manifest(self.selection)

    @cached_property
    def index(self) -> Ref:
        """The release's index that the arm read."""
        return dict(inputs_of(self.manifest))["index"]

    @cached_property
    def embeddings(self) -> dict[str, Ref]:
        """The vectors of each crawl that the arm read."""
        return _by_crawl(self.manifest, "embeddings")

    @cached_property
    def index_manifest(self) -> Mapping[str, Any]:
        return self.store.manifest(self.index)

    @cached_property
    def candidates(self) -> Ref:
        return dict(inputs_of(self.index_manifest))["candidates"]

    @cached_property
    def near_copies(self) -> Ref | None:
        """Which documents were left out as near-copies; ``None`` where these were not sought."""
        return dict(inputs_of(self.index_manifest)).get("copies")

    @cached_property
    def candidates_manifest(self) -> Mapping[str, Any]:
        return self.store.manifest(self.candidates)

    @cached_property
    def documents(self) -> dict[str, Ref]:
        """The documents of each crawl, in the release's order: in canonical order, row n of all has position n."""
        found = _by_crawl(self.candidates_manifest, "documents")
        return {crawl: found[crawl] for crawl in self.candidates_manifest["basis"]["config"]["crawls"]}

    @cached_property
    def stale(self) -> list[str]:
        """What it was made from that is another by now, one line each."""
        return stale(self.store, self.selection)

    @cached_property
    def arms(self) -> dict[str, "Selected"]:
        """The arms of the release that chose from the same index, this one among them."""
        return {
            other.arm: other
            for other in _of_release(self.store, self.release)
            if other.index.content_digest == self.index.content_digest
        }

    @property
    def arms_of_another_pool(self) -> list[str]:
        """The arms of the release that chose from another index; nothing compares them with this one."""
        return [other.arm for other in _of_release(self.store, self.release) if other.arm not in self.arms]

    def made_with(self, stage: str) -> Ref | None:
        """The current artefact of a stage for this arm, if it was made from this mask, or with it."""
        ref = self.store.current(stage, self.selection.key)
        if ref is None:
            return None
        manifest = self.store.manifest(ref)
        read = dict(inputs_of(manifest)).get("selection")
        if read is not None:
            return ref if read.content_digest == self.selection.content_digest else None
        same = all(manifest["basis"][part] == self.manifest["basis"][part] for part in ("config", "inputs"))
        return ref if same else None


def selected(store: Store, release: str, arm: str | None = None) -> Selected:
    """The current selection of a release's arm.

    Args:
        store: The record.
        release: The release.
        arm: The arm; by default the release's only one.

    Raises:
        UnknownNameError: the record has no selection of that release or arm.
        ConfigurationError: no arm is named, and there are several.
    """
    keys = store.keys("select")
    arms = [key.split("/", 1)[1] for key in keys if key.split("/", 1)[0] == release]
    if not arms:
        remedy = "" if keys else "the record holds no selection yet: `datamask run --until select` makes one"
        raise refusal_without(
            store, release, "mask", {key.split("/", 1)[0] for key in keys}, "select", remedy
        )
    if arm is None and len(arms) > 1:
        raise ConfigurationError(f"release {release!r} has several arms; name one: {', '.join(arms)}")
    chosen = arms[0] if arm is None else arm
    ref = store.current("select", f"{release}/{chosen}") if chosen in arms else None
    if ref is None:
        raise UnknownNameError("arm", chosen, arms)
    return Selected(store, ref)


def _of_release(store: Store, release: str) -> Iterator[Selected]:
    for key in store.keys("select"):
        ref = store.current("select", key)
        if key.split("/", 1)[0] == release and ref is not None:
            yield Selected(store, ref)


def _by_crawl(manifest: Mapping[str, Any], of: str) -> dict[str, Ref]:
    return {name.partition("/")[2]: ref for name, ref in inputs_of(manifest) if name.partition("/")[0] == of}
