"""References to artefacts, where an artefact lies, and the record's small JSON files. Knows no file system."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from datamask_pipeline import lineage
from datamask_pipeline.errors import ConfigurationError, IntegrityError

MANIFEST = "manifest.json"
CURRENT = "current.json"


@dataclasses.dataclass(frozen=True, slots=True)
class Ref:
    """What travels between stages instead of a table.

    Attributes:
        stage: The stage that made the artefact.
        key: Its partition: a crawl, a release, or ``release/arm``.
        fingerprint: What it should be.
        content_digest: What it is.
        location: Directory, relative to the store's root.
        rows: Rows over all its parts.
    """

    stage: str
    key: str
    fingerprint: str
    content_digest: str
    location: str
    rows: int

    @property
    def short(self) -> str:
        """First 16 digits of the fingerprint: the artefact's id in paths and reports."""
        return self.fingerprint[:16]

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


#: Below a key, the leases of those who write its parts.
SHARDS = "shards"

#: What has to stand in a pointer, and in a manifest.
REF_FIELDS: Mapping[str, type] = {field.name: str for field in dataclasses.fields(Ref)} | {"rows": int}
MANIFEST_FIELDS: Mapping[str, type] = {
    **REF_FIELDS,
    **dict.fromkeys(("parts", "trees"), list),
    **dict.fromkeys(("basis", "inputs", "counts", "metadata"), dict),
    "written_at_ns": int,
}


def location_of(stage: str, key: str, fingerprint: str) -> str:
    """Directory of an artefact, relative to the store's root.

    Raises:
        ConfigurationError: as ``check_key``.
    """
    check_key(stage, key)
    return f"{stage}/{key}/{fingerprint[:16]}"


def check_key(stage: str, key: str) -> None:
    """Refuse a key that would not lie in its stage's directory.

    Raises:
        ConfigurationError: a piece of the key cannot be the name of a directory.
    """
    for piece in (stage, *key.split("/")):
        if piece in ("", ".", "..") or "\0" in piece or piece.encode(errors="ignore").decode() != piece:
            raise ConfigurationError(
                f"{stage} of {key!r}: {piece!r} cannot be the name of a directory in the record; give the crawl, "
                "release or arm another name"
            )


def ref_of(manifest: Mapping[str, Any]) -> Ref:
    """The reference that a manifest or pointer holds.

    Raises:
        IntegrityError: its location is none of its stage and key.
    """
    ref = Ref(**{name: manifest[name] for name in REF_FIELDS})
    folder, _, last = ref.location.rpartition("/")
    try:
        check_key(ref.stage, f"{ref.key}/{last}")
    except ConfigurationError as error:
        raise IntegrityError(f"what is said to lie at {ref.location!r} cannot be read: {error}") from error
    if folder != f"{ref.stage}/{ref.key}":
        raise IntegrityError(
            f"stage {ref.stage!r} of {ref.key!r} is said to lie at {ref.location!r}, which is none of its places; run the "
            "stage again"
        )
    return ref


def read_manifest(data: bytes, path: str, *, remedy: str) -> dict[str, Any]:
    """A manifest that says what was written, and of which no name leads out of its directory.

    Args:
        data: The file's bytes.
        path: Where it lies, for the message.
        remedy: What to do about a damaged one.

    Raises:
        IntegrityError: as `read_json`; it says something else than was written; or a part, file or folder with such a name.
    """
    manifest = read_json(data, path, MANIFEST_FIELDS, remedy=remedy)
    # The first versions of the record wrote neither digest nor files.
    if ("manifest_digest" in manifest or "files" in manifest) and manifest.get(
        "manifest_digest"
    ) != manifest_digest(manifest):
        raise IntegrityError(
            f"{path} says something else than was written: its `manifest_digest` is another's; restore it from a copy of "
            "the record, or delete its folder: a run makes it anew where it is current, and knows no more of it otherwise"
        )
    try:
        names = [item["name"] for kind in ("parts", "files", "trees") for item in manifest.get(kind, ())]
        names += [name for tree in manifest["trees"] for name in tree["files"]]
    except (KeyError, TypeError) as error:
        remedy = "delete its folder, and run the stage again"
        raise IntegrityError(f"{path} holds a part, file or folder without a name; {remedy}") from error
    for name in names:
        if not isinstance(name, str) or name.startswith("/") or ".." in name.split("/"):
            raise IntegrityError(f"{path} names {name!r}, which leads out of its directory; {remedy}")
    return manifest


def manifest_digest(manifest: Mapping[str, Any]) -> str:
    """Digest of all that a manifest says, but this: an edit of any figure in it is noticed."""
    said = {name: value for name, value in manifest.items() if name != "manifest_digest"}
    return lineage.sha256_text(lineage.canonical_json(said))


def part_files(part: Mapping[str, Any]) -> dict[str, int]:
    """The files that a part's record names, and the bytes each must have."""
    files = {f"{part['name']}.parquet": part["bytes"]}
    if "array" in part:
        files[f"{part['name']}.npy"] = part["array"]["bytes"]
    return files


def stored_bytes(manifest: Mapping[str, Any]) -> int:
    """What an artefact's parts, their arrays, its trees and the files beside them take; not the manifest and its like."""
    parts = sum(sum(part_files(part).values()) for part in manifest["parts"])
    return parts + sum(int(each["bytes"]) for each in (*manifest["trees"], *manifest["files"]))


def read_json(data: bytes, path: str, fields: Mapping[str, type], *, remedy: str) -> dict[str, Any]:
    """What a small file of the record holds.

    Args:
        data: The file's bytes.
        path: Where it lies, for the message.
        fields: What must stand in it, and of which type.
        remedy: What to do about a damaged one.

    Raises:
        IntegrityError: it is cut, no JSON object, or lacks a field.
    """
    try:
        values = json.loads(data)
    except ValueError as error:
        raise IntegrityError(f"{path} is not JSON ({error}); {remedy}") from error
    if not isinstance(values, dict):
        raise IntegrityError(f"{path} holds no JSON object; {remedy}")
    for name, kind in fields.items():
        if not isinstance(values.get(name), kind):
            raise IntegrityError(f"{path} holds no {name!r} of type {kind.__name__}; {remedy}")
    return values


def pretty_json(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
