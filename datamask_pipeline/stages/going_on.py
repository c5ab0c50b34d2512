"""Which parts of an earlier release's artefact are the first parts of a later one's. Knows no stage's columns.

A release that goes on from another has its crawls first. What a stage made of these is the same again where settings and
inputs are: then its parts are carried over as they are, and only the added crawls are computed.
"""

from collections.abc import Mapping
from typing import Any

from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.ref import MANIFEST


def goes_on(
    store: Store,
    held: Ref | None,
    *,
    version: str,
    settings: Mapping[str, Any],
    inputs: Mapping[str, Ref | str],
    by_parts: tuple[str, ...] = (),
) -> bool:
    """Whether an earlier artefact's parts are the first ones of this.

    Args:
        store: The record.
        held: The earlier one, if there is any.
        version: Of the stage.
        settings: Of this artefact; ``crawls`` are the release's in order.
        inputs: Of this artefact, by name; those of a crawl are named ``<argument>/<crawl>``.
        by_parts: Inputs of the whole release: of these the parts of the earlier crawls have to be alike.
    """
    if held is None:
        return False
    made = store.manifest(held)
    before, now = dict(made["basis"]["config"]), dict(settings)
    crawls, all_crawls = before.pop("crawls"), now.pop("crawls")
    if made["basis"]["version"] != version or before != now or all_crawls[: len(crawls)] != crawls:
        return False
    theirs = {name: item for name, item in made["inputs"].items() if name != "held"}
    ours = {
        name: item
        for name, item in inputs.items()
        if name != "held" and ("/" not in name or name.partition("/")[2] in crawls)
    }
    if {*theirs} != {*ours}:
        return False
    return all(
        _begins_as(store, item, theirs[name], len(crawls))
        if name in by_parts
        else _digest(item) == made["basis"]["inputs"][name]
        for name, item in ours.items()
    )


def _begins_as(store: Store, ours: Ref | str, theirs: Mapping[str, Any], num_parts: int) -> bool:
    """Whether the first parts of an artefact are all those of another, which stands in the record still."""
    location = theirs["location"]
    if isinstance(ours, str) or not store.fs.exists(f"{store.root}/{location}/{MANIFEST}"):
        return False
    have, had = (store.manifest_at(each)["parts"] for each in (ours.location, location))
    digests = [[part["digest"] for part in parts] for parts in (have[:num_parts], had)]
    return digests[0] == digests[1]


def _digest(item: Ref | str) -> str:
    return item.content_digest if isinstance(item, Ref) else item
