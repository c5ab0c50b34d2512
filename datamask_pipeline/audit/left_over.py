"""Masks that no run makes anew and that rest on what was purged: no question about all masks can be answered of them.

Knows manifests and tombstones; reads no rows.
"""

from collections.abc import Collection, Mapping

from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.ref import MANIFEST
from datamask_pipeline.storage.tombstones import Tombstone, tombstones


def left_over(store: Store, made: Collection[str] | None) -> dict[str, str]:
    """The masks that a question leaves out, each with a line that says why.

    Args:
        store: The record.
        made: Keys of the masks that runs make (`pipeline.order.masks_made`); ``None``: that is not known, and none is left
            out. A mask that runs make and that rests on what was purged is to be made anew.
    """
    purges = {location: each for each in tombstones(store) for location in each.removed}
    found: dict[str, str] = {}
    for key in store.keys("select") if purges and made is not None else ():
        ref = None if key in (made or ()) else store.current("select", key)
        if ref is not None and (location := _purged_behind(store, ref, purges)) is not None:
            release, _, arm = key.partition("/")
            found[key] = (
                f"left out: arm {arm} of release {release}, which no run of this configuration makes anew and which rests "
                f"on {location}, purged by {purges[location].title}"
            )
    return found


def _purged_behind(store: Store, mask: Ref, purges: Mapping[str, Tombstone]) -> str | None:
    """The first version behind a mask that was purged; ``None``: all that it was made from stands."""
    waiting, seen = [mask.location], set[str]()
    while waiting:
        location = waiting.pop(0)
        if location in purges:
            return location
        if location not in seen:
            seen.add(location)
            if store.fs.exists(f"{store.root}/{location}/{MANIFEST}"):  # else `datamask sweep` took it
                waiting += [ref.location for _, ref in inputs_of(store.manifest_at(location))]
    return None
