"""Holds a table's indexes and the digests of its pieces against the table itself. Knows no stage."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from datamask_pipeline.audit.findings import Finding, contradiction
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.pieces import PIECES_FILE, digests_of
from datamask_pipeline.storage.row_index import INDEX_FILES, write_index


def check_index(store: Store, location: str, manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """Make both again from the parts and compare; an artefact of an earlier version has neither.

    Args:
        store: The record.
        location: The artefact's directory.
        manifest: What its manifest says.
    """
    stated = {file["name"]: file["sha256"] for file in manifest.get("files", ())}
    parts = [f"{store.root}/{location}/{part['name']}.parquet" for part in manifest["parts"]]
    indexes = {column: name for column, name in INDEX_FILES.items() if name in stated}
    for column, name in indexes.items():
        with tempfile.TemporaryDirectory() as folder:
            again = write_index(store, parts, column, Path(folder, name), Path(folder))
        if again["sha256"] != stated[name]:
            yield contradiction(f"{location}/{name}", f"is not the index of its parts' rows by `{column}`")
    if PIECES_FILE in stated:
        digests = bytearray()
        for path in (*parts, *(f"{store.root}/{location}/{name}" for name in indexes.values())):
            with store.fs.open(path, "rb") as stream:
                digests += digests_of(stream)
        if store.fs.cat_file(f"{store.root}/{location}/{PIECES_FILE}") != bytes(digests):
            yield contradiction(
                f"{location}/{PIECES_FILE}", "holds other digests than those of its parts' bytes"
            )
