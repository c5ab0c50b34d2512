"""Artefacts that say something else than their stage wrote, with digests that fit: for tests of what reads them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.hashed import sha256_file
from datamask_pipeline.storage.ref import manifest_digest, pretty_json


def restate(path: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest with the digest of what it says."""
    manifest["manifest_digest"] = manifest_digest(manifest)
    path.write_text(pretty_json(manifest))


def rewrite(store: Store, ref: Ref, table: pa.Table) -> None:
    """Put a table of as many rows in the place of the artefact's one part."""
    (path,) = store.part_paths(ref)
    manifest = store.manifest(ref)
    pq.write_table(table, path)
    (part,) = manifest["parts"]
    part |= {"bytes": Path(path).stat().st_size, "sha256": sha256_file(Path(path))}
    restate(Path(store.file_path(ref, "manifest.json")), manifest)
