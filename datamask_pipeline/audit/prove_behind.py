"""Proves what stands behind a published data set: its record, and that the record makes it: rows, words and figures."""

import itertools
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from datamask_pipeline.audit.findings import Finding, contradiction, purged, unknown
from datamask_pipeline.audit.pointers import Manifests, files_of
from datamask_pipeline.audit.prove import prove_artefacts
from datamask_pipeline.audit.prove_told import check_columns, check_told, descriptions
from datamask_pipeline.audit.replay import first_difference
from datamask_pipeline.audit.stated import DAMAGE, read_manifest
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.publish.config import PublishConfig
from datamask_pipeline.publish.dataset import build
from datamask_pipeline.publish.manifest import NAME, SHARD
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.hashed import sha256_at
from datamask_pipeline.storage.ref import MANIFEST, ref_of
from datamask_pipeline.storage.tombstones import removed_by

_NOT_COMPARED: Final = "its rows, columns, lineage, card and description were not held against the record"


def prove_behind(store: Store, fs: Any, path: str, *, files_only: bool = False) -> Iterator[Finding]:
    """Every contradiction between a data set and the record it was made from, and within that record.

    Args:
        store: The record.
        fs: The data set's file system.
        path: Its folder there; its own files are proved by `prove_data_set`.
        files_only: Leave out what is computed again from inputs, and the data set made again, which is told.
    """
    manifest = json.loads(fs.cat_file(f"{path}/{NAME}"))
    files = files_of(store)
    manifests: Manifests = {}
    contradicted = False
    for finding in itertools.chain(
        _check_arm(manifest),
        _check_lineage(store, manifest, files, manifests),
        prove_artefacts(store, manifests, files, files_only=files_only),
    ):
        contradicted = contradicted or finding.kind == "contradiction"
        yield finding
    gone = [each for each in manifest["lineage"] if removed_by(store, each) is not None]
    if contradicted:
        return
    if gone and (by := removed_by(store, gone[0])) is not None:
        yield purged(NAME, by, f"{_NOT_COMPARED}: {gone[0]} was ")
    elif files_only:
        yield unknown(NAME, f"{_NOT_COMPARED}: that is left out with --files-only")
    elif {*manifests} == {*manifest["lineage"]}:
        yield from _check_made_again(store, fs, path, manifest, manifests)


def _check_arm(manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """The subset is one of what it was made from, of the release and arm that are named."""
    about = manifest["data_set"]
    if about["subset"] not in manifest["lineage"]:
        yield contradiction(NAME, f"`lineage` lacks {about['subset']}, the subset")
    if (of := about["subset"].rpartition("/")[0]) != f"materialise/{about['release']}/{about['arm']}":
        yield contradiction(NAME, f"is of {about['release']}/{about['arm']}, and its subset of {of}")


def _check_lineage(
    store: Store, manifest: Mapping[str, Any], files: Mapping[str, int], manifests: Manifests
) -> Iterator[Finding]:
    """Each version that it was made from is the record's; their manifests are added to `manifests`."""
    for location, said in manifest["lineage"].items():
        file = f"{location}/{MANIFEST}"
        if file not in files and (by := removed_by(store, location)) is not None:
            yield purged(file, by)
        elif file not in files:
            yield unknown(file, "the record has no such version, or has it no more")
        elif (found := sha256_at(store.fs, f"{store.root}/{file}")) != said["manifest_sha256"]:
            yield contradiction(
                file, f"SHA-256 is {found}, and the data set was made from {said['manifest_sha256']}"
            )
        else:
            manifests[location] = read_manifest(store, location)
            names = ("fingerprint", "content_digest")
            if others := [name for name in names if manifests[location][name] != said[name]]:
                yield contradiction(NAME, f"states another {' and '.join(others)} of {location}")


def _check_made_again(
    store: Store, fs: Any, path: str, manifest: Mapping[str, Any], manifests: Manifests
) -> Iterator[Finding]:
    """The same subset and settings, published again, have the same rows, and say the same."""
    about = manifest["data_set"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "data_set"
        folder.mkdir()
        try:
            config = PublishConfig.model_validate(about["settings"])
            subset = ref_of(manifests[about["subset"]])
            again = build(store, subset, folder, config, measured_among=manifest["lineage"])
        except DAMAGE as error:
            yield contradiction(
                NAME, f"cannot be made again from the record: {type(error).__name__}: {error}"
            )
            return
        yield from _check_manifest(manifest, again)
        if {*again["files"]} != {*manifest["files"]}:
            made = ", ".join(sorted(again["files"]))
            yield contradiction(NAME, f"the record makes other files: {made}")
            return
        of_record = descriptions(*_schemas(store, manifests[about["subset"]]))
        for name, file in manifest["files"].items():
            if file["sha256"] == again["files"][name]["sha256"]:
                continue
            if not name.endswith(SHARD):
                said, made = fs.cat_file(f"{path}/{name}").decode(), (folder / name).read_text("utf-8")
                yield from check_told(name, said, made, manifest["files"], again["files"])
                continue
            with fs.open(f"{path}/{name}", "rb") as stream, pq.ParquetFile(folder / name) as ours:
                theirs = pq.ParquetFile(stream)
                if (difference := first_difference(name, theirs, ours)) is not None:
                    yield difference
                else:
                    yield from check_columns(name, theirs.schema_arrow, ours.schema_arrow, of_record)


def _check_manifest(manifest: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[Finding]:
    """What a manifest says of the data set, and of all that it was made from, is what the record makes."""
    said, made = manifest["data_set"], again["data_set"]
    for name in made:
        if name != "settings" and said[name] != made[name]:
            yield contradiction(
                NAME, f"`data_set.{name}` is {said[name]!r}, and the record makes {made[name]!r}"
            )
    for name in sorted({*said} - {*made}):
        yield unknown(NAME, f"says `data_set.{name}`, which this program does not write")
    for location in sorted({*again["lineage"]} - {*manifest["lineage"]}):
        yield contradiction(NAME, f"`lineage` lacks {location}, which it was made from")
    for location in sorted({*manifest["lineage"]} - {*again["lineage"]}):
        yield contradiction(NAME, f"`lineage` names {location}, which it was not made from")


def _schemas(store: Store, subset: Mapping[str, Any]) -> Iterator[pa.Schema]:
    """Columns of the subset, and of the documents that it was made from, as the record has them."""
    documents = [ref for name, ref in inputs_of(subset) if name.startswith("documents/")]
    for ref in (ref_of(subset), *documents):
        for name in store.part_names(ref)[:1]:
            with store.part_file(ref, name) as part:
                yield part.schema_arrow
