"""A purge that is killed before any of its writes, and called again, leaves the record that an undisturbed one leaves."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from typer.testing import CliRunner

from datamask_pipeline.cli.app import app
from datamask_pipeline.compliance import purge as purging
from datamask_pipeline.compliance.purge import purge
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Store, require
from datamask_pipeline.storage.tombstones import tombstones

CRAWL = "tiny-2024-10"
#: What differs between two records of the same content.
_OF_THE_DAY = ("written_at", "written_at_ns", "wall_seconds", "manifest_digest", "date", "tombstone_digest")


class Killed(BaseException):
    """What a process that is killed does no more."""


class Writes:
    """What a store writes and removes, each change by its path; before a chosen one it is killed.

    Attributes:
        paths: What was changed.
        before: Before which change to kill, from 0; ``None`` for none.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        self.before: int | None = None
        publish, remove, remove_all = Store._publish, LocalFileSystem.rm_file, LocalFileSystem.rm

        def published(store: Store, private: Path, target: str) -> None:
            self._count(target)
            publish(store, private, target)

        def removed(fs: LocalFileSystem, path: str) -> None:
            self._count(path)
            remove(fs, path)

        def removed_all(fs: LocalFileSystem, path: str, **more: Any) -> None:
            self._count(path)
            remove_all(fs, path, **more)

        patch.setattr(Store, "_publish", published)
        patch.setattr(LocalFileSystem, "rm_file", removed)
        patch.setattr(LocalFileSystem, "rm", removed_all)

    def _count(self, path: str) -> None:
        if "/.leases/" in path:  # those of a process that is killed are its machine's to tell dead
            return
        if len(self.paths) == self.before:
            raise Killed
        self.paths.append(path)

    def call(self, store: Store, before: int | None) -> bool:
        """Purge, and say whether it ended; killed before so many changes of this call."""
        self.paths, self.before = [], before
        try:
            assert purge(store, "letter 17") is not None
        except Killed:
            return False
        return True


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Writes:
    """Writes of records whose salt is the same."""
    monkeypatch.setattr("secrets.token_hex", lambda _: "0" * 32)
    return Writes(monkeypatch)


def said(store: Store) -> dict[str, Any]:
    """Every file of a record by its path, with what it says where it is JSON, but for times."""
    root = Path(store.root)
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    named = {path.relative_to(root).as_posix(): path for path in files}
    return {
        name: dict(_timeless(json.loads(path.read_text()))) if path.suffix == ".json" else None
        for name, path in named.items()
        if not name.startswith(".")
    }


def _timeless(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if name not in _OF_THE_DAY:
            yield name, dict(_timeless(value)) if isinstance(value, dict) else value


def copy_of(store: Store, folder: Path) -> Store:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(store.root, folder)
    return Store(folder)


@pytest.mark.slow
def test_a_purge_killed_between_the_documents_and_the_vectors_of_a_crawl_keeps_the_vectors(
    copied: Pipeline, tmp_path: Path, writes: Writes
) -> None:
    """It took what it had superseded itself for what the vectors were made of, and removed them as of no use."""
    whole, half = copy_of(copied.store, tmp_path / "whole"), copied.store
    assert writes.call(whole, None)
    switched = {
        stage: next(
            n for n, path in enumerate(writes.paths) if path.endswith(f"/{stage}/{CRAWL}/current.json")
        )
        for stage in ("ingest", "embed")
    }
    assert not writes.call(half, switched["ingest"] + 1)
    assert not writes.call(half, next_switch(half, copied, tmp_path, writes))
    assert writes.call(half, None)
    assert said(half) == said(whole)
    assert require(half, "embed", CRAWL).rows == require(half, "ingest", CRAWL).rows


def next_switch(half: Store, copied: Pipeline, tmp_path: Path, writes: Writes) -> int:
    """How many changes a call makes until the vectors of the crawl are switched too."""
    assert writes.call(copy_of(half, tmp_path / "ahead"), None)
    return 1 + next(n for n, path in enumerate(writes.paths) if path.endswith(f"/embed/{CRAWL}/current.json"))


def test_what_a_killed_purge_is_said_to_do_is_not_told_as_done(copied: Pipeline, writes: Writes) -> None:
    assert not writes.call(copied.store, 2)
    writes.before = None
    other = ["purge", "--request", "other", "-s", f"store={copied.store.root}"]
    told = CliRunner().invoke(app, [*other, "--dry-run"]).output
    assert "begun, and ended by the next call, whatever its request: request 1 (letter 17) of" in told
    assert "documents to be erased from crawl" in told
    assert "versions to be removed" in told
    assert "now `datamask run`" not in told
    told = CliRunner().invoke(app, other).output
    assert "purged by request 1 (letter 17)" in told
    assert "documents erased from crawl" in told
    assert "'other' was neither kept nor begun: purge again for it" in told


@pytest.mark.parametrize("when", ["manifest_at", "takedown_report"])
def test_a_version_that_a_sweep_removes_meanwhile_is_to_be_made_by_nobody(
    copied: Pipeline, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """While the versions are listed, or while it is told what the withdrawal cost."""
    store = copied.store
    superseded = next(
        each["location"]
        for each in store.all_manifests("gather")
        if each["location"] != require(store, "gather", "first").location
    )
    read, report = Store.manifest_at, purging.takedown_report

    def swept(store: Store, location: str) -> dict[str, Any]:
        if location == superseded:
            shutil.rmtree(Path(store.root) / superseded)
        return read(store, location)

    def reported(store: Store, release: str) -> Any:
        shutil.rmtree(Path(store.root) / superseded)
        return report(store, release)

    with monkeypatch.context() as patch:
        if when == "manifest_at":
            patch.setattr(Store, "manifest_at", swept)
        else:
            patch.setattr(purging, "takedown_report", reported)
        with pytest.raises(IntegrityError, match=f"{superseded} was removed while .*; call again"):
            purge(store, "letter 17")
    assert not tombstones(store)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_purge_killed_before_any_write_ends_the_same(
    copied: Pipeline, tmp_path: Path, writes: Writes
) -> None:
    """Of each moment once, and with a second kill some writes later."""
    whole = copy_of(copied.store, tmp_path / "whole")
    assert writes.call(whole, None)
    number, wanted = len(writes.paths), said(whole)
    assert number > 50
    for first in range(1, number):
        half = copy_of(copied.store, tmp_path / "half")
        assert not writes.call(half, first)
        again = writes.call(half, 1 + first % 7) if first % 2 else False
        assert again or writes.call(half, None)
        assert said(half) == wanted, (first, writes.paths)
