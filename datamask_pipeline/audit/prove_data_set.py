"""Proves a published data set: its files, its manifest, its root digest. Needs no record."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq

from datamask_pipeline.audit.findings import Finding, contradiction
from datamask_pipeline.audit.stated import DAMAGE, sha256_at
from datamask_pipeline.publish.manifest import FIELDS, FORMAT, NAME, manifest_bytes, root_digest


def is_data_set(fs: Any, path: str) -> bool:
    """Whether a folder holds the manifest of a data set."""
    return bool(fs.exists(f"{path}/{NAME}"))


def prove_data_set(fs: Any, path: str, root: str | None = None) -> Iterator[Finding]:
    """Every contradiction between a data set's files, its manifest and its root digest.

    Args:
        fs: Its file system.
        path: Its folder there.
        root: The root digest that was kept elsewhere; without it, a manifest that was written anew goes unnoticed.
    """
    try:
        data = fs.cat_file(f"{path}/{NAME}")
        manifest = json.loads(data)
        lacking = [name for name, kind in FIELDS.items() if not isinstance(manifest.get(name), kind)]
        if lacking:
            raise ValueError(f"it lacks {', '.join(lacking)}")
    except DAMAGE as error:
        yield contradiction(NAME, f"cannot be read: {type(error).__name__}: {error}")
        return
    if manifest["format"] != FORMAT:
        yield contradiction(NAME, f"has format {manifest['format']}, and this program writes {FORMAT}")
    if data != manifest_bytes(manifest):
        yield contradiction(NAME, "is not spelt as this program spells a manifest")
    if manifest["root"] != root_digest(manifest):
        yield contradiction(NAME, f"the root digest of what it says is {root_digest(manifest)}")
    if root is not None and manifest["root"] != root:
        yield contradiction(NAME, f"its root digest is {manifest['root']}, and {root} was kept")
    there = {name[len(path) + 1 :]: info["size"] for name, info in fs.find(path, detail=True).items()}
    for name in sorted({*there} - {*manifest["files"], NAME}):
        yield contradiction(name, "no manifest names this file")
    for name, file in manifest["files"].items():
        try:
            yield from _check_file(fs, path, name, file, there)
        except DAMAGE as error:
            yield contradiction(name, f"cannot be read: {type(error).__name__}: {error}")
    rows = sum(file.get("rows", 0) for file in manifest["files"].values())
    if rows != manifest["data_set"].get("documents"):
        yield contradiction(
            NAME, f"states {manifest['data_set'].get('documents')} documents, its files {rows}"
        )


def _check_file(
    fs: Any, path: str, name: str, file: dict[str, Any], there: dict[str, int]
) -> Iterator[Finding]:
    if name not in there:
        yield contradiction(name, "is missing")
    elif there[name] != file["bytes"]:
        yield contradiction(name, f"has {there[name]} bytes where {file['bytes']} were written")
    elif (found := sha256_at(fs, f"{path}/{name}")) != file["sha256"]:
        yield contradiction(name, f"SHA-256 is {found}, and {file['sha256']} was written")
    elif "rows" in file:
        with fs.open(f"{path}/{name}", "rb") as stream:
            if (rows := pq.read_metadata(stream).num_rows) != file["rows"]:
                yield contradiction(name, f"has {rows} rows where {file['rows']} are stated")
