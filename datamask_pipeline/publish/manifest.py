"""The manifest of a published data set, and the root digest that stands for all of it. Knows no meaning of a file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from datamask_pipeline import lineage
from datamask_pipeline.publish.behind import Artefact
from datamask_pipeline.storage.hashed import sha256_file
from datamask_pipeline.storage.ref import pretty_json, read_json

NAME: Final = "manifest.json"
#: The files that tell of the data set.
CARD, CROISSANT = "README.md", "croissant.json"
#: How the name of a file with rows ends.
SHARD: Final = ".parquet"
FORMAT: Final = 1
#: What must stand in a manifest, and of which type.
FIELDS: Final[Mapping[str, type]] = {
    "format": int,
    "data_set": dict,
    "files": dict,
    "lineage": dict,
    "root": str,
}
#: The same of what it says of the data set, and of each version that the data set was made from.
OF_DATA_SET: Final[Mapping[str, type]] = {
    **dict.fromkeys(("name", "release", "arm", "subset"), str),
    "documents": int,
    "columns": list,
    **dict.fromkeys(("settings", "licences"), dict),
}
OF_LINEAGE: Final[Mapping[str, type]] = dict.fromkeys(
    ("fingerprint", "content_digest", "manifest_sha256"), str
)


def manifest_of(
    files: Mapping[str, Mapping[str, Any]], behind: Mapping[str, Artefact], data_set: Mapping[str, Any]
) -> dict[str, Any]:
    """What stands in the folder, what it was made from, and the root digest.

    Args:
        files: Bytes, SHA-256 and, of a Parquet file, rows of every other file, by its path in the folder.
        behind: The subset and all that it was made from, by location.
        data_set: What it is: release, arm, columns, settings.
    """
    return sealed(
        {
            "format": FORMAT,
            "data_set": lineage.plain(dict(data_set)),
            "files": {name: dict(files[name]) for name in sorted(files)},
            "lineage": {
                location: {
                    "fingerprint": artefact.ref.fingerprint,
                    "content_digest": artefact.ref.content_digest,
                    "manifest_sha256": artefact.manifest_sha256,
                }
                for location, artefact in sorted(behind.items())
            },
        }
    )


def sealed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest with its root digest."""
    return {**manifest, "root": root_digest(manifest)}


def root_digest(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of all that a manifest says but the digest itself: files, sizes, digests, lineage, as canonical JSON."""
    said = {name: value for name, value in manifest.items() if name != "root"}
    return lineage.sha256_text(lineage.canonical_json(said))


def root_said(data: bytes, path: str) -> str:
    """The root digest that a manifest names, unproved.

    Raises:
        IntegrityError: it is no manifest.
    """
    return str(read_json(data, path, {"root": str}, remedy="name another folder")["root"])


def manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    """The file's bytes: there is one spelling of a manifest."""
    return pretty_json(manifest).encode()


def stated(path: Path) -> dict[str, Any]:
    """What a manifest says of a file: its bytes and SHA-256."""
    return {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
