"""Compares one artefact with its manifest, and the manifest with itself: every byte of every file. Knows no stage."""

import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import yaml

from datamask_pipeline import lineage
from datamask_pipeline.audit.findings import Finding, contradiction, unknown
from datamask_pipeline.errors import DataMaskError, first_line
from datamask_pipeline.storage import Store, check_balance
from datamask_pipeline.storage.hashed import sha256_at
from datamask_pipeline.storage.ref import MANIFEST, location_of, manifest_digest, part_files, pretty_json

#: Bytes hashed at a time.
_PIECE: Final = 1 << 22

#: What reading damaged bytes may raise, beside our own.
DAMAGE: Final = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    pa.ArrowException,
    yaml.YAMLError,
    DataMaskError,
)


def check_artefact(
    store: Store, location: str, manifest: Mapping[str, Any], files: Mapping[str, int]
) -> Iterator[Finding]:
    """Hold an artefact against its manifest.

    Args:
        store: The record.
        location: Its directory.
        manifest: What its manifest says.
        files: Bytes of every file in the directory, by path there.
    """
    for name in sorted(files):
        yield from check_link(store, f"{location}/{name}")
    yield from _check_manifest(store, location, manifest)
    named = {MANIFEST}
    for part in manifest["parts"]:
        named |= {*part_files(part), f"{part['name']}.parquet.json"}
        yield from _check_part(store, location, part, files)
    for tree in manifest["trees"]:
        named |= {f"{tree['name']}/{name}" for name in tree["files"]}
        yield from _check_tree(store, location, tree, files)
    for file in manifest.get("files", ()):
        named.add(file["name"])
        yield from _check_bytes(store, f"{location}/{file['name']}", file["sha256"])
    for name in sorted({*files} - named):
        if "files" in manifest:
            yield contradiction(f"{location}/{name}", "no manifest names this file")
        else:
            yield unknown(f"{location}/{name}", "a manifest of an earlier version does not name such files")


def _check_manifest(store: Store, location: str, manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """What a manifest says of itself: spelling, digests, place and sums."""
    file = f"{location}/{MANIFEST}"
    if store.fs.cat_file(f"{store.root}/{file}") != pretty_json(manifest).encode():
        yield contradiction(file, "is not spelt as this program spells a manifest")
    if "manifest_digest" not in manifest and "files" in manifest:
        yield contradiction(file, "has no `manifest_digest`, which whoever wrote `files` wrote too")
    elif "manifest_digest" not in manifest:
        yield unknown(file, "an earlier version wrote it without a digest of itself")
    elif manifest["manifest_digest"] != manifest_digest(manifest):
        yield contradiction(file, "what it says has another digest than `manifest_digest`")
    basis = manifest["basis"]
    fingerprint = lineage.sha256_text(lineage.canonical_json(basis))
    if manifest["fingerprint"] != fingerprint:
        yield contradiction(file, f"`fingerprint` is not that of `basis`: {fingerprint}")
    if manifest["stage"] not in (basis.get("stage"), location.split("/")[0]) or location != location_of(
        manifest["stage"], manifest["key"], manifest["fingerprint"]
    ):
        yield contradiction(file, f"describes {manifest['stage']} of {manifest['key']}, which lies elsewhere")
    if manifest["location"] != location:
        yield contradiction(file, f"`location` is {manifest['location']}")
    parts = manifest["parts"]
    arrays = [{"name": f"{part['name']}.npy", **part["array"]} for part in parts if "array" in part]
    content = [(str(item["name"]), str(item["digest"])) for item in [*parts, *arrays, *manifest["trees"]]]
    if manifest["content_digest"] != lineage.combined_digest(content):
        yield contradiction(file, "`content_digest` is not that of its parts")
    if manifest["rows"] != sum(part["rows"] for part in parts):
        yield contradiction(file, f"`rows` is {manifest['rows']}, and its parts have others")
    try:
        check_balance(manifest["stage"], manifest["key"], manifest["counts"])
    except DataMaskError as error:
        yield contradiction(file, str(error))


def _check_part(
    store: Store, location: str, part: Mapping[str, Any], files: Mapping[str, int]
) -> Iterator[Finding]:
    """The file's bytes, its rows, its record and the array beside it."""
    path = f"{location}/{part['name']}.parquet"
    for name, size in part_files(part).items():
        if files.get(name) != size:
            yield contradiction(
                f"{location}/{name}", f"has {files.get(name)} bytes where {size} were written"
            )
            return
    record = f"{path}.json"
    if f"{part['name']}.parquet.json" not in files:
        yield contradiction(record, "is missing")
    elif store.fs.cat_file(f"{store.root}/{record}") != pretty_json(dict(part)).encode():
        yield contradiction(record, "says something else of the part than the manifest")
    damaged = False
    if "sha256" in part:
        for finding in _check_bytes(store, path, part["sha256"]):
            damaged = True
            yield finding
    else:
        yield unknown(
            path, "an earlier version wrote it without the file's digest: its rows were checked alone"
        )
    if not damaged:
        yield from _check_rows(store, path, part)
    if "array" in part:
        yield from check_array(store, f"{location}/{part['name']}.npy", part["array"])


def _check_rows(store: Store, path: str, part: Mapping[str, Any]) -> Iterator[Finding]:
    """The digest of the rows themselves: a file may be hashed anew by who changed it."""
    try:
        with store.open_parquet(f"{store.root}/{path}") as opened:
            columns = opened.schema_arrow
            digest = lineage.TableDigest(columns)
            for batch in opened.iter_batches():
                if batch.num_rows:
                    digest.update(batch)
    except DAMAGE as error:
        yield contradiction(path, f"cannot be read: {first_line(error)}")
        return
    if digest.num_rows != part["rows"]:
        yield contradiction(path, f"has {digest.num_rows} rows where {part['rows']} were written")
    if digest.hexdigest() == part["digest"] or not (
        digest.num_rows or part["rows"]
    ):  # no rows have no digest
        return
    if "sha256" not in part and any(pa.types.is_nested(field.type) for field in columns):
        yield unknown(path, "an earlier version hashed rows of lists in another way")
    else:
        yield contradiction(path, "its rows have another digest than was written")


def check_array(store: Store, path: str, record: Mapping[str, Any]) -> Iterator[Finding]:
    """Header and bits of an array; its digest covers type, shape and bits."""
    header = io.BytesIO()
    kind = np.dtype(record["dtype"]).newbyteorder("<")
    described = {
        "descr": np.lib.format.dtype_to_descr(kind),
        "fortran_order": False,
        "shape": tuple(record["shape"]),
    }
    np.lib.format.write_array_header_1_0(header, described)
    hashed = hashlib.sha256()
    with store.fs.open(f"{store.root}/{path}", "rb") as stream:
        if stream.read(header.tell()) != header.getvalue():
            yield contradiction(path, "its header states another type or shape")
            return
        while piece := stream.read(_PIECE):
            hashed.update(piece)
    found = lineage.sha256_text(
        lineage.canonical_json([record["dtype"], list(record["shape"]), hashed.hexdigest()])
    )
    if found != record["digest"]:
        yield contradiction(path, "its numbers have another digest than was written")


def _check_tree(
    store: Store, location: str, tree: Mapping[str, Any], files: Mapping[str, int]
) -> Iterator[Finding]:
    """Every file of a directory that is content."""
    folder = f"{location}/{tree['name']}"
    if tree["digest"] != lineage.combined_digest(sorted(tree["files"].items())):
        yield contradiction(
            f"{location}/{MANIFEST}", f"the digest of {tree['name']} is not that of its files"
        )
    for name, sha256 in tree["files"].items():
        if f"{tree['name']}/{name}" not in files:
            yield contradiction(f"{folder}/{name}", "is missing")
        else:
            yield from _check_bytes(store, f"{folder}/{name}", sha256)


def check_link(store: Store, path: str) -> Iterator[Finding]:
    """A file of the record is in the record: where a link leads outside, bytes change without the record's doing."""
    if not store.is_local:
        return
    real = os.path.realpath(f"{store.root}/{path}")
    if not real.startswith(os.path.join(os.path.realpath(store.root), "")):
        yield contradiction(path, f"is a link to {real}, outside the record; put the file itself here")


def _check_bytes(store: Store, path: str, sha256: str) -> Iterator[Finding]:
    try:
        found = sha256_at(store.fs, f"{store.root}/{path}")
    except FileNotFoundError:
        yield contradiction(path, "is missing")
        return
    if found != sha256:
        yield contradiction(path, f"SHA-256 is {found}, and {sha256} was written")


def read_manifest(store: Store, location: str) -> dict[str, Any]:
    """A manifest as it stands, whatever it lacks.

    Raises:
        ValueError: it is no JSON object.
    """
    found = json.loads(store.fs.cat_file(f"{store.root}/{location}/{MANIFEST}"))
    if not isinstance(found, dict):
        raise ValueError("it holds no JSON object")
    return found
