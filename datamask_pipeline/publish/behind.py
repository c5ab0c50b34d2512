"""What an artefact was made from, all the way to the crawls: versions, manifests, digests. Knows no stage."""

import dataclasses
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.ref import MANIFEST, read_manifest, ref_of
from datamask_pipeline.storage.tombstones import missing

_REMEDY = "run the stage again to make the artefact anew"


@dataclasses.dataclass(frozen=True)
class Artefact:
    """One version in the record.

    Attributes:
        ref: What it is.
        manifest: All that its manifest says.
        manifest_sha256: SHA-256 of the manifest's bytes, in hexadecimal.
    """

    ref: Ref
    manifest: Mapping[str, Any]
    manifest_sha256: str


def read_artefact(store: Store, location: str) -> Artefact:
    """The artefact in a directory of the record.

    Raises:
        IntegrityError: its manifest is missing or damaged.
    """
    path = f"{store.root}/{location}/{MANIFEST}"
    try:
        data = store.fs.cat_file(path)
    except FileNotFoundError:
        raise IntegrityError(missing(store, location, _REMEDY)) from None
    manifest = read_manifest(data, path, remedy=_REMEDY)
    return Artefact(ref_of(manifest), manifest, hashlib.sha256(data).hexdigest())


def inputs_of(manifest: Mapping[str, Any]) -> Iterator[tuple[str, Ref]]:
    """The artefacts that one was made from, by the input's name; a file or model that it read is not among them."""
    for name, item in manifest["inputs"].items():
        if isinstance(item, Mapping):
            yield name, Ref(**item)


def made_from(
    store: Store, stage: str, key: str, argument: str, digest: str, among: Collection[str] | None = None
) -> Ref | None:
    """The artefact of a stage and key that was made from an input of that content; the current one before older ones.

    Args:
        store: The record.
        stage: What made it.
        key: Its key.
        argument: The input's name.
        digest: The input's content digest.
        among: Locations of which it is one; ``None`` for any.
    """
    current = store.current(stage, key)
    manifests = [store.manifest(current)] if current is not None else []
    manifests += store.all_manifests(f"{stage}/{key}")
    found = (ref_of(each) for each in manifests if each["basis"]["inputs"].get(argument) == digest)
    return next((ref for ref in found if among is None or ref.location in among), None)


def artefacts_behind(store: Store, refs: Iterable[Ref]) -> dict[str, Artefact]:
    """These artefacts and all that they were made from, by location, each after what it was made from.

    Raises:
        IntegrityError: a manifest is missing or damaged.
    """
    found: dict[str, Artefact] = {}

    def visit(location: str) -> None:
        if location in found:
            return
        artefact = read_artefact(store, location)
        for _, ref in inputs_of(artefact.manifest):
            visit(ref.location)
        found[location] = artefact

    for ref in refs:
        visit(ref.location)
    return found
