"""Proves what stands behind a published data set: its record, and that the record makes these very rows."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from datamask_pipeline.audit.findings import Finding, contradiction, purged, unknown
from datamask_pipeline.audit.pointers import Manifests, files_of
from datamask_pipeline.audit.prove import prove_artefacts
from datamask_pipeline.audit.replay import first_difference
from datamask_pipeline.audit.stated import DAMAGE, read_manifest, sha256_at
from datamask_pipeline.publish.config import PublishConfig
from datamask_pipeline.publish.dataset import build
from datamask_pipeline.publish.manifest import NAME
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.ref import MANIFEST, ref_of
from datamask_pipeline.storage.tombstones import removed_by


def prove_behind(store: Store, fs: Any, path: str, *, files_only: bool = False) -> Iterator[Finding]:
    """Every contradiction between a data set and the record it was made from, and within that record.

    Args:
        store: The record.
        fs: The data set's file system.
        path: Its folder there; its own files are proved by `prove_data_set`.
        files_only: Leave out what is computed again from inputs, and the rows made again.
    """
    manifest = json.loads(fs.cat_file(f"{path}/{NAME}"))
    files = files_of(store)
    manifests: Manifests = {}
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
    contradicted = False
    for finding in prove_artefacts(store, manifests, files, files_only=files_only):
        contradicted = contradicted or finding.kind == "contradiction"
        yield finding
    if not files_only and not contradicted and {*manifests} == {*manifest["lineage"]}:
        yield from _check_made_again(store, fs, path, manifest, manifests)


def _check_made_again(
    store: Store, fs: Any, path: str, manifest: Mapping[str, Any], manifests: Manifests
) -> Iterator[Finding]:
    """The same subset and settings, published again, have the same rows."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "data_set"
        folder.mkdir()
        try:
            config = PublishConfig.model_validate(manifest["data_set"]["settings"])
            subset = ref_of(manifests[manifest["data_set"]["subset"]])
            again = build(store, subset, folder, config)["files"]
        except DAMAGE as error:
            yield contradiction(
                NAME, f"cannot be made again from the record: {type(error).__name__}: {error}"
            )
            return
        if {*again} != {*manifest["files"]}:
            yield contradiction(NAME, f"the record makes other files: {', '.join(sorted(again))}")
            return
        for name, file in manifest["files"].items():
            if file["sha256"] == again[name]["sha256"]:
                continue
            if not name.endswith(".parquet"):
                yield unknown(
                    name, "made again it reads otherwise, as another version of a library may write it"
                )
                continue
            with fs.open(f"{path}/{name}", "rb") as stream, pq.ParquetFile(folder / name) as made:
                if (difference := first_difference(name, pq.ParquetFile(stream), made)) is not None:
                    yield difference
