"""Masks as a user names them, current or older, and what each was made from. Knows manifests; reads no rows."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal

from datamask_pipeline.audit.reader import input_location
from datamask_pipeline.errors import ConfigurationError, IntegrityError, UnknownNameError
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.ref import ref_of
from datamask_pipeline.storage.releases import refusal_without
from datamask_pipeline.storage.tombstones import purged_manifests, removed_by

_REMEDY: Final = "`datamask run --until select` makes masks, in the record that `store` names"


@dataclasses.dataclass(frozen=True)
class Selection:
    """A mask with what it was made from; each a manifest.

    Attributes:
        mask: The mask.
        index: The index that it read.
        pool: The candidates behind that.
        copies: The near-copies behind that; ``None`` where they were not sought.
    """

    mask: Mapping[str, Any]
    index: Mapping[str, Any]
    pool: Mapping[str, Any]
    copies: Mapping[str, Any] | None

    @classmethod
    def of(cls, store: Store, mask: Ref) -> "Selection":
        """A mask of the record.

        Raises:
            IntegrityError: it, or what it was made from, was purged or is damaged.
        """

        def behind(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
            location = str(input_location(manifest, name))
            if (by := removed_by(store, location)) is not None:
                raise IntegrityError(
                    f"who was a candidate of {mask.location} is not known any more: {location} was purged by {by.title}; "
                    "compare a later version"
                )
            return store.manifest_at(location)

        made = store.manifest(mask)
        index = behind(made, "index")
        copies = None if input_location(index, "copies") is None else behind(index, "copies")
        return cls(made, index, behind(index, "candidates"), copies)

    @property
    def crawls(self) -> dict[str, int]:
        """The first position of each crawl, in the release's order."""
        found, first = {}, 0
        for crawl, part in zip(self.pool["basis"]["config"]["crawls"], self.pool["parts"], strict=True):
            found[crawl] = first
            first += int(part["rows"])
        return found

    def digest(self, of: Literal["documents", "embeddings", "scores"], crawl: str) -> str:
        """The content digest of what was read of a crawl."""
        manifest = {"documents": self.pool, "embeddings": self.mask, "scores": self.index}[of]
        return str(manifest["basis"]["inputs"][f"{of}/{crawl}"])


def paired(store: Store, before: str, after: str) -> tuple[list[tuple[Ref, Ref]], list[str]]:
    """The masks that two targets name.

    Args:
        store: The record.
        before: ``release/arm`` or ``release``; ``release/arm@version`` names an older mask by the first digits of its
            fingerprint, ``release/arm@previous`` the one that was made last before the current one.
        after: The same; both are arms or both releases.

    Returns:
        The pairs: one of two arms, and of two releases one an arm that both have; and the arms that one side lacks.

    Raises:
        UnknownNameError: the record has no such release, arm or version.
        ConfigurationError: one is an arm and the other a release.
    """
    if ("/" in before) != ("/" in after):
        raise ConfigurationError(
            f"{before!r} and {after!r} cannot be compared: name two arms, as `first/datamask`, or two releases"
        )
    if "/" in before:
        return [(_mask(store, before), _mask(store, after))], []
    arms = {target: _arms(store, target) for target in (before, after)}
    both = [arm for arm in arms[before] if arm in arms[after]]
    if not both:
        raise ConfigurationError(f"releases {before!r} and {after!r} have no arm in common")
    pairs = [(_mask(store, f"{before}/{arm}"), _mask(store, f"{after}/{arm}")) for arm in both]
    return pairs, sorted({*arms[before]} ^ {*arms[after]})


def _arms(store: Store, release: str) -> list[str]:
    keys = [key.split("/", 1) for key in store.keys("select")]
    arms = [arm for name, arm in keys if name == release]
    if not arms:
        raise refusal_without(store, release, "mask", {name for name, _ in keys}, "select", _REMEDY)
    return arms


def _mask(store: Store, target: str) -> Ref:
    key, names_one, version = target.partition("@")
    current = store.current("select", key)
    if current is None:
        raise UnknownNameError("selection", key, store.keys("select"), remedy=_REMEDY)
    if not names_one:
        return current
    # Whoever reads one that was purged tells by which request.
    purged = (
        each for each in purged_manifests(store).values() if (each["stage"], each["key"]) == ("select", key)
    )
    known = [*store.all_manifests(f"select/{key}"), *purged]
    made = sorted(known, key=lambda manifest: -manifest["written_at_ns"])
    older = [ref_of(manifest) for manifest in made if manifest["location"] != current.location]
    if version == "previous" and older:
        return older[0]
    found = [ref for ref in [current, *older] if version and ref.fingerprint.startswith(version)]
    if len(found) != 1:
        raise UnknownNameError(f"version of {key}", version, [ref.short for ref in [*older, current]])
    return found[0]
