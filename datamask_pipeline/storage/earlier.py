"""Parts of the artefact that stood before, which the one in the making has, too. Knows no stage.

Where one file of a crawl was added or repaired, its other parts are made from what they were made from before.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.storage.npy import array_digest
from datamask_pipeline.storage.ref import Ref
from datamask_pipeline.storage.store import Store


@dataclass(frozen=True)
class Earlier:
    """An artefact of the same stage and key.

    Attributes:
        ref: Which.
        parts: Records of those of its parts that this one has, too, by name.
    """

    ref: Ref
    parts: Mapping[str, Mapping[str, Any]]


def earlier_parts(
    store: Store,
    stage: str,
    key: str,
    basis: Mapping[str, Any],
    inputs: Mapping[str, Any],
    by_parts: Sequence[str],
) -> Earlier | None:
    """The current artefact and what it has in common with one of this basis; ``None`` where it has nothing.

    Version, settings and all inputs but those of `by_parts` have to be the same. Of these a part is made from the part of
    its name alone: it stands where that is the same.

    Args:
        store: The record.
        stage: The stage.
        key: The key.
        basis: Of the artefact in the making, as `lineage.fingerprint` states it.
        inputs: Its inputs, as a manifest names them.
        by_parts: Names of inputs.
    """
    current = store.current(stage, key)
    made = None if current is None else _stands(store, current.location)
    if current is None or made is None:
        return None
    before, now = ({**of, "inputs": _without(of["inputs"], by_parts)} for of in (made["basis"], basis))
    if before != now:
        return None
    common = {part["name"]: part for part in made["parts"]}
    for name in by_parts:
        if name not in inputs:
            continue
        theirs, ours = (_stands(store, of[name]["location"]) for of in (made["inputs"], inputs))
        if theirs is None or ours is None:
            return None
        alike = _digests(theirs).items() & _digests(ours).items()
        common = {part: record for part, record in common.items() if part in dict(alike)}
    return Earlier(current, common) if common else None


def is_whole(store: Store, location: str, part: Mapping[str, Any]) -> bool:
    """Whether a part's files hold what was written: reads them."""
    base = f"{store.root}/{location}/{part['name']}"
    try:
        with store.fs.open(f"{base}.parquet", "rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != part["sha256"]:
                return False
        if "array" not in part:
            return True
        with store.fs.open(f"{base}.npy", "rb") as stream:
            return array_digest(stream) == part["array"]["digest"]
    except (FileNotFoundError, ValueError):
        return False


def _stands(store: Store, location: str) -> dict[str, Any] | None:
    """The manifest there; ``None`` where it is gone."""
    try:
        return store.manifest_at(location)
    except IntegrityError:
        return None


def _without(inputs: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Other inputs with their digests; of these only that they are there."""
    return {name: None if name in names else digest for name, digest in inputs.items()}


def _digests(manifest: Mapping[str, Any]) -> dict[str, tuple[str, str | None]]:
    """Of each part: of its rows, and of its array."""
    return {part["name"]: (part["digest"], part.get("array", {}).get("digest")) for part in manifest["parts"]}
