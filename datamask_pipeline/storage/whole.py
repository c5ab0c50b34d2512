"""Holds the tables of an artefact against the digests in its manifest, for what rests on every row. Reads all bytes."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.storage.ref import CURRENT, Ref, ref_of
from datamask_pipeline.storage.store import Store

_REMEDY: Final = "`datamask audit prove` tells more; delete it and run its stage again, which makes it anew"
_HASHED_BYTES: Final = 1 << 22


def check_tables(store: Store, *refs: Ref) -> None:
    """Hash every part and folder of some artefacts; the first versions of the record stated no digest, and are passed over.

    Raises:
        IntegrityError: a file is missing, or holds other bytes than were written to it; the manifest or what points to it
            says something else than was written. The file is named.
    """
    for ref in refs:
        manifest = store.manifest(ref)
        if ref_of(manifest) != ref:
            pointer = f"{ref.stage}/{ref.key}/{CURRENT}"
            raise altered(store, pointer, f"says something else of {ref.location} than its manifest")
        for part in manifest["parts"]:
            check_part(store, ref.location, part)
        for tree in manifest["trees"]:
            for name, sha256 in tree["files"].items():
                _check_file(store, f"{ref.location}/{tree['name']}/{name}", sha256)


def check_part(store: Store, location: str, part: Mapping[str, Any]) -> None:
    """Hash a part of an artefact, given its entry in the manifest; raises as `check_tables`."""
    if "sha256" in part:
        _check_file(store, f"{location}/{part['name']}.parquet", part["sha256"])


def _check_file(store: Store, path: str, sha256: str) -> None:
    """Hash a file of the record, given its place there; raises as `check_tables`."""
    hashed = hashlib.sha256()
    try:
        with store.fs.open(f"{store.root}/{path}", "rb") as stream:
            while piece := stream.read(_HASHED_BYTES):
                hashed.update(piece)
    except FileNotFoundError:
        raise altered(store, path, "is missing") from None
    if hashed.hexdigest() != sha256:
        raise altered(store, path, "holds other bytes than were written to it")


def altered(store: Store, path: str, problem: str) -> IntegrityError:
    """The refusal of a file of the record, by its place there."""
    return IntegrityError(f"{store.root}/{path} {problem}; {_REMEDY}")
