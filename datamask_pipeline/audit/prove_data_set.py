"""Proves a published data set: its files, its manifest, its root digest, and what these say twice. Needs no record."""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from datamask_pipeline.audit.findings import Finding, contradiction
from datamask_pipeline.audit.stated import DAMAGE
from datamask_pipeline.publish.manifest import (
    CARD,
    CROISSANT,
    FIELDS,
    FORMAT,
    NAME,
    OF_DATA_SET,
    OF_LINEAGE,
    SHARD,
    manifest_bytes,
    root_digest,
)
from datamask_pipeline.sources.content import content_hashes
from datamask_pipeline.storage.hashed import sha256_at
from datamask_pipeline.yaml_text import parse_yaml

#: What a manifest must say of a file, and of which type.
_OF_A_FILE: Final = {"bytes": int, "sha256": str}
#: Rows that are read at a time.
_ROWS: Final = 8_192


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
        _refuse_lacking(manifest, FIELDS, "it")
        _refuse_lacking(manifest["data_set"], OF_DATA_SET, "`data_set`")
        _refuse_lacking(manifest["data_set"]["settings"], {"licence": str}, "`settings`")
        for name, about in manifest["files"].items():
            of_rows = {"rows": int} if name.endswith(SHARD) else {}
            _refuse_lacking(about, _OF_A_FILE | of_rows, f"`files` of {name}")
        for location, about in manifest["lineage"].items():
            _refuse_lacking(about, OF_LINEAGE, f"`lineage` of {location}")
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
    whole = set()
    for name, file in manifest["files"].items():
        try:
            found = [*_check_file(fs, path, name, file, there)]
        except DAMAGE as error:
            found = [contradiction(name, f"cannot be read: {type(error).__name__}: {error}")]
        yield from found
        whole |= set() if found else {name}
    yield from _check_licence(fs, path, manifest, {CARD, CROISSANT} & whole)
    stated = manifest["data_set"]["documents"]
    rows = sum(file["rows"] for name, file in manifest["files"].items() if name.endswith(SHARD))
    if rows != stated:
        yield contradiction(NAME, f"states {stated} documents, its files {rows}")


def _refuse_lacking(values: Any, fields: Mapping[str, type], what: str) -> None:
    if not isinstance(values, dict):
        raise ValueError(f"{what} says nothing")
    if lacking := [name for name, kind in fields.items() if not isinstance(values.get(name), kind)]:
        raise ValueError(f"{what} lacks {', '.join(lacking)}")


def _check_file(
    fs: Any, path: str, name: str, file: dict[str, Any], there: dict[str, int]
) -> Iterator[Finding]:
    if name not in there:
        yield contradiction(name, "is missing")
    elif there[name] != file["bytes"]:
        yield contradiction(name, f"has {there[name]} bytes where {file['bytes']} were written")
    elif (found := sha256_at(fs, f"{path}/{name}")) != file["sha256"]:
        yield contradiction(name, f"SHA-256 is {found}, and {file['sha256']} was written")
    elif name.endswith(SHARD):
        with fs.open(f"{path}/{name}", "rb") as stream, pq.ParquetFile(stream) as opened:
            if (rows := opened.metadata.num_rows) != file["rows"]:
                yield contradiction(name, f"has {rows} rows where {file['rows']} are stated")
            yield from _check_texts(name, opened)


def _check_texts(name: str, opened: pq.ParquetFile) -> Iterator[Finding]:
    """Each text is that of its content hash; the first that is not is named."""
    if not {"text", "content_hash"} <= {*opened.schema_arrow.names}:
        return
    first = 0
    for batch in opened.iter_batches(batch_size=_ROWS, columns=["text", "content_hash"]):
        hashes = content_hashes(batch.column("text").cast(pa.string()))
        others = pc.indices_nonzero(pc.not_equal(hashes, batch.column("content_hash"))).to_pylist()
        if others:
            yield contradiction(name, f"row {first + others[0]}: its text is not that of its `content_hash`")
            return
        first += batch.num_rows


def _check_licence(fs: Any, path: str, manifest: dict[str, Any], names: Collection[str]) -> Iterator[Finding]:
    """Card and Croissant state the licence that the manifest does."""
    licence = manifest["data_set"]["settings"]["licence"]
    for name in sorted(names):
        try:
            text = fs.cat_file(f"{path}/{name}").decode("utf-8")
            stated = parse_yaml(text.split("---\n")[1]) if name == CARD else json.loads(text)
            said = stated.get("license")
        except DAMAGE:
            said = "that nobody can read"
        if said != licence:
            yield contradiction(name, f"states the licence {said}, and {NAME} {licence}")
