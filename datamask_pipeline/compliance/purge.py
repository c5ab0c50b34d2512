"""Erases what a record still holds of withdrawn documents, and leaves a tombstone. Removes no standing release or model.

The tombstone comes first: from then on no stage takes the documents in again, and whoever calls again goes on from it. A
version loses its manifest first, so a reader sees all of it or nothing.
"""

import dataclasses
import shutil
import time
from collections.abc import Mapping
from typing import Any

from datamask_pipeline.compliance.erase import erase_crawl
from datamask_pipeline.compliance.purge_plan import Plan, plan
from datamask_pipeline.storage import Store, storage_errors
from datamask_pipeline.storage.ref import MANIFEST
from datamask_pipeline.storage.tombstones import Tombstone, publish, tombstones


def unfinished(store: Store) -> Tombstone | None:
    """The purge that was begun and not ended; ``None``: there is none."""
    return next((each for each in tombstones(store) if each.state == "begun"), None)


def purge(store: Store, request: str) -> Tombstone:
    """Erase and remove, or end what an earlier call began.

    Args:
        store: The record.
        request: What asks for it, e.g. the number of a letter.

    Returns:
        The tombstone, of the earlier call where there was one.

    Raises:
        ConfigurationError: as `plan`.
    """
    with store.exclusive("purged", "all"):
        begun = unfinished(store) or _begin(store, request, plan(store))
        for crawl in begun.documents:
            erase_crawl(store, crawl)
        for location, manifest in begun.removed.items():
            _remove(store, location, manifest)
        ended = dataclasses.replace(begun, state="done")
        publish(store, ended)
        return ended


def _begin(store: Store, request: str, planned: Plan) -> Tombstone:
    removed = {
        location: {**_without_names(store.manifest_at(location)), "held": held}
        for location, held in planned.removed.items()
    }
    tombstone = Tombstone(
        number=len(tombstones(store)) + 1,
        request=request,
        date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        state="begun",
        salt=planned.salt,
        documents=planned.documents,
        contents=planned.contents,
        removed=removed,
        standing=planned.standing,
    )
    publish(store, tombstone)
    return tombstone


def _without_names(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest without the entries of requests, which may be ids."""
    metadata = {name: value for name, value in manifest["metadata"].items() if name != "takedown_unmatched"}
    return {**manifest, "metadata": metadata}


def _remove(store: Store, location: str, manifest: Mapping[str, Any]) -> None:
    """Remove a version and what unfinished work of its stage and key left; one that is gone already stays gone."""
    with store.exclusive(manifest["stage"], manifest["key"]), storage_errors(location):
        folder = f"{store.root}/{location}"
        if store.fs.exists(f"{folder}/{MANIFEST}"):
            store.fs.rm_file(f"{folder}/{MANIFEST}")
        if store.fs.exists(folder):
            store.fs.rm(folder, recursive=True)
        shutil.rmtree(store.scratch(location).parent, ignore_errors=True)
