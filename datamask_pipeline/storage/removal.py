"""Removes the files of a version of an artefact. Decides nothing, and holds no lease: who calls it does both."""

from datamask_pipeline.storage.ref import MANIFEST
from datamask_pipeline.storage.store import Store


def remove_files(store: Store, location: str) -> None:
    """Remove a version, its manifest first, so that a reader sees all of it or nothing; one that is gone stays gone."""
    folder = f"{store.root}/{location}"
    if store.fs.exists(f"{folder}/{MANIFEST}"):
        store.fs.rm_file(f"{folder}/{MANIFEST}")
    if store.fs.exists(folder):
        store.fs.rm(folder, recursive=True)
