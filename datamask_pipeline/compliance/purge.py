"""Erases what a record still holds of withdrawn documents, and leaves a tombstone. Removes no standing release or model.

The tombstone comes first: from then on no stage takes the documents in again, and whoever calls again goes on from it. A
version loses its manifest first, so a reader sees all of it or nothing.
"""

import dataclasses
import shutil
import time
from collections.abc import Collection, Mapping
from typing import Any

from datamask_pipeline.compliance.content import content_of
from datamask_pipeline.compliance.erase import erase_crawl, unname_requests
from datamask_pipeline.compliance.graph import Graph, unswept
from datamask_pipeline.compliance.purge_plan import OF_A_CRAWL, Plan, plan
from datamask_pipeline.compliance.takedown import is_withdrawing, takedown_report, unnamed_report
from datamask_pipeline.compliance.unfinished import begun_on, unfinished_key
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.stages.pool import REQUESTS
from datamask_pipeline.storage import Store, storage_errors
from datamask_pipeline.storage.npy import forget_copies
from datamask_pipeline.storage.ref import CURRENT, MANIFEST, SHARDS, ref_of
from datamask_pipeline.storage.removal import remove_files
from datamask_pipeline.storage.tombstones import Tombstone, publish, tombstones


def unfinished(store: Store) -> Tombstone | None:
    """The purge that was begun and not ended; ``None``: there is none."""
    return next((each for each in tombstones(store) if each.state == "begun"), None)


def refuse_no_request(request: str) -> None:
    """Refuse to erase for nothing that could be named later.

    Raises:
        ConfigurationError: the request has neither letter nor digit.
    """
    if not any(sign.isalnum() for sign in request):
        raise ConfigurationError(
            f"--request: {request!r} names no request; say what asks for the purge, e.g. the number of a letter: it "
            "is kept, and cannot be changed later"
        )


def purge(store: Store, request: str, off: Collection[str] = ()) -> Tombstone | None:
    """Erase and remove, or end what an earlier call began.

    Args:
        store: The record.
        request: What asks for it, e.g. the number of a letter.
        off: Artefacts of stages that are switched off, as `plan`.

    Returns:
        The tombstone, of the earlier call where there was one; ``None``: nothing is left to be purged, nothing was written.

    Raises:
        ConfigurationError: as `plan` and `refuse_no_request`; or the record holds no pool.
    """
    refuse_no_request(request)
    if not store.keys("pool") and not tombstones(store):
        raise ConfigurationError(
            f"{store.root_url} holds no pool, so that nothing is withdrawn from it; name another record in `store`"
        )
    with store.exclusive("purged", "all"):
        store.sweep()  # what writers that were killed left unpublished may hold a withdrawn document
        begun = unfinished(store)
        if begun is None and (planned := plan(store, off)).is_empty:
            return None
        known = frozenset() if begun else planned.versions
        if begun is None:
            with unswept(store, planned.versions):
                begun = _begin(store, request, planned)
        _wait_for_crawls(store, begun)
        if not known >= Graph(store).manifests.keys():
            begun = _with_what_came(store, begun, plan(store, off))
        for crawl in begun.documents:
            erase_crawl(store, crawl)
        for release in store.keys("takedown"):
            unname_requests(store, release)
        for location, manifest in begun.removed.items():
            _remove(store, location, manifest["stage"], manifest["key"])
            forget_copies(store, manifest)
        left = {
            *begun.unfinished,
            *begun_on(Graph(store), begun.documents, OF_A_CRAWL),
        } - begun.removed.keys()
        gone = [each for each in sorted(left) if _remove(store, each, *unfinished_key(each), finished=False)]
        ended = dataclasses.replace(begun, state="done", unfinished=gone)
        publish(store, ended)
        return ended


def _begin(store: Store, request: str, planned: Plan) -> Tombstone:
    withdrawing = [key for key in store.keys("pool") if is_withdrawing(store, key)]
    tombstone = Tombstone(
        number=len(tombstones(store)) + 1,
        request=request,
        date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        state="begun",
        salt=planned.salt,
        documents=planned.documents,
        contents=planned.contents,
        removed=_all_kept(store, planned, planned.removed),
        standing=planned.standing,
        urls=planned.urls,
        totals=planned.totals,
        unfinished=planned.unfinished,
        kept=planned.kept,
        reports={
            key: unnamed_report(store, takedown_report(store, key), planned.unnamed) for key in withdrawing
        },
    )
    publish(store, tombstone)
    return tombstone


def _all_kept(
    store: Store, planned: Plan, removed: Mapping[str, Mapping[str, list[str]]]
) -> dict[str, dict[str, Any]]:
    """What a tombstone keeps of versions that a plan removes, by location."""
    return {
        location: _kept_of(store, location, held)
        | {"used": location in planned.used}
        | ({"texts": planned.texts[location]} if location in planned.texts else {})
        for location, held in removed.items()
    }


def _kept_of(store: Store, location: str, held: Mapping[str, list[str]]) -> dict[str, Any]:
    """What a tombstone keeps of a version."""
    manifest = store.manifest_at(location)
    kept = {**_without_names(manifest), "held": held}
    if manifest["stage"] == "materialise":
        kept["content"] = content_of(store, ref_of(manifest))
    return kept


def _without_names(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest without the entries of requests, which may be ids."""
    metadata = {name: value for name, value in manifest["metadata"].items() if name not in REQUESTS}
    return {**manifest, "metadata": metadata}


def _with_what_came(store: Store, begun: Tombstone, again: Plan) -> Tombstone:
    """The tombstone with what was finished or begun after its own plan was made, and before it stood."""
    came = {each: held for each, held in again.removed.items() if each not in begun.removed}
    removed = {**begun.removed, **_all_kept(store, again, came)}
    unfinished = sorted({*begun.unfinished, *again.unfinished})
    longer = dataclasses.replace(begun, removed=removed, unfinished=unfinished)
    publish(store, longer)
    return longer


def _wait_for_crawls(store: Store, begun: Tombstone) -> None:
    """Until nobody is at a crawl, or a shard of one, who began before the tombstone; who comes later knows it."""
    for crawl in begun.documents:
        for stage in OF_A_CRAWL:
            for name in (*store.leases.below(f"{stage}/{crawl}/{SHARDS}"), f"{stage}/{crawl}"):
                with store.exclusive(stage, name.partition("/")[2]):
                    pass


def _remove(store: Store, location: str, stage: str, key: str, *, finished: bool = True) -> bool:
    """Remove a version and what unfinished work of its stage and key left, once nobody is at it.

    One that is gone already stays gone. What is to be removed as unfinished (`finished` false) and has been finished
    meanwhile stays: it is current, and was made of what the tombstone knows. Says whether it is gone.
    """
    with store.exclusive(stage, key), storage_errors(location):
        if not finished and store.fs.exists(f"{store.root}/{location}/{MANIFEST}"):
            return False
        ref = store.current(stage, key)
        if ref is not None and ref.location == location:  # of a stage that is off
            store.fs.rm_file(f"{store.root}/{stage}/{key}/{CURRENT}")
        remove_files(store, location)
        shutil.rmtree(store.scratch(location).parent, ignore_errors=True)
        store.remove_notes(location.rpartition("/")[0])
        return True
