"""Reads artefacts and publishes files atomically. Knows no stage and no artefact's meaning."""

import contextlib
import logging
import math
import multiprocessing
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from datamask_pipeline import lineage
from datamask_pipeline.disk import sync
from datamask_pipeline.errors import (
    ConfigurationError,
    IntegrityError,
    StorageError,
    TakenOverError,
)
from datamask_pipeline.storage.format import FORMAT, FORMAT_FILE, format_bytes, stated_format
from datamask_pipeline.storage.hashed import sha256_file
from datamask_pipeline.storage.leases import Lease, Leases, is_alive, machine_label
from datamask_pipeline.storage.links import link_or_copy
from datamask_pipeline.storage.places import unwritable
from datamask_pipeline.storage.reaching import file_system_of, is_local, protocols, unreached
from datamask_pipeline.storage.ref import (
    CURRENT,
    MANIFEST,
    REF_FIELDS,
    SHARDS,
    Ref,
    check_key,
    location_of,
    part_files,
    pretty_json,
    read_json,
    read_manifest,
    ref_of,
)
from datamask_pipeline.storage.refusals import AGAIN, finding, reading, storage_errors

if TYPE_CHECKING:
    from datamask_pipeline.storage.builder import ArtefactBuilder

logger = logging.getLogger(__name__)

ROW_GROUP_ROWS = 8_192

#: After so long without a change, a private file of another machine belongs to nobody.
ABANDONED_SECONDS = 86_400


class Store:
    """Artefacts under one root.

    Args:
        root: A local directory or any fsspec URL (``s3://bucket/prefix``).
        storage_options: Passed to the file system, e.g. ``{"endpoint_url": ...}``.

    Attributes:
        made: Locations of artefacts that were finished, or of which parts were written, through this object.
        again: Locations of artefacts that were there, and that it made current in place of another version.

    Raises:
        ConfigurationError: as ``file_system_of``, or the root chains file systems.
    """

    def __init__(
        self, root: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
    ) -> None:
        self.root_url = os.fspath(root)
        if "::" in self.root_url:
            raise ConfigurationError(
                f"store {self.root_url!r} holds '::', which would chain file systems; name one directory or URL"
            )
        # A listing that is kept would hide what other processes write.
        self._options = {"use_listings_cache": False, **dict(storage_options or {})}
        self.fs, path = file_system_of(self.root_url, self._options, setting="store")
        self.root = path.rstrip("/")
        self.is_local = is_local(self.fs)
        self._format: int | None = None
        self.leases = Leases(self.fs, f"{self.root}/.leases", is_local=self.is_local)
        self._held: list[Lease] = []
        self.made: set[str] = set()
        self.again: set[str] = set()

    def forget_made(self) -> None:
        """Tell `made` and `again` anew from here on."""
        self.made.clear()
        self.again.clear()

    @property
    def named(self) -> str:
        """What messages call it."""
        return f"store {self.root_url!r}"

    def address(self, location: str) -> str:
        """Where something of the record lies, as other programs open it: a path, or a URL."""
        path = f"{self.root}/{location}"
        return path if self.is_local else str(self.fs.unstrip_protocol(path))

    def options_for(self, url: str) -> dict[str, Any]:
        """What another place is opened with: what this store is, where they are of one scheme, or else nothing."""
        from fsspec.utils import get_protocol

        return dict(self._options) if get_protocol(url) in protocols(self.fs) else {}

    def reach(self) -> None:
        """Refuse a record that cannot be reached, read or, on this machine's disks, written; creates nothing.

        Raises:
            StorageError: the storage refuses, or does not answer.
            ConfigurationError: the record has a later format.
        """
        try:
            self.fs.exists(f"{self.root}/.staging")
        except Exception as error:  # object stores raise errors of their own libraries
            raise unreached(self.named, error) from error
        self.format()
        self._refuse_unwritable()

    def _refuse_unwritable(self) -> None:
        if self.is_local and (problem := unwritable(self.root)) is not None:
            raise StorageError(
                f"store {self.root_url!r} cannot be written: {problem}; name another directory in `store`"
            )

    def refuse_missing(self) -> None:
        """Refuse a place where nothing is, which would look like a record that holds nothing.

        Raises:
            ConfigurationError: there is no such folder, or it is empty.
        """
        if not self.fs.exists(self.root) or not self.fs.ls(self.root, detail=False):
            place = f" (folder {self.root})" if self.is_local and self.root != self.root_url else ""
            raise ConfigurationError(
                f"there is no record at {self.root_url}{place}; name another in `store`, a relative one from the folder in "
                "which the command is called, or make it by `datamask run`"
            )

    def format(self) -> int:
        """The version of the record's format; 1 where none is stated.

        Raises:
            ConfigurationError: the record has a later format than this code reads.
            IntegrityError: the file that states it is damaged.
        """
        if self._format is None:
            self._format = stated_format(self.fs, self.root)
        return self._format

    # -- reading -----------------------------------------------------------------------------------------

    def find(self, stage: str, key: str, fingerprint: str) -> Ref | None:
        """The finished artefact of that fingerprint, or ``None``.

        One that has lost a file or whose manifest is damaged is not finished: its stage makes it again.
        """
        location = location_of(stage, key, fingerprint)
        folder = f"{self.root}/{location}"
        sizes = {
            path[len(folder) + 1 :]: info["size"] for path, info in self.fs.find(folder, detail=True).items()
        }
        if MANIFEST not in sizes:
            return None
        try:
            manifest = self.manifest_at(location)
        except IntegrityError:
            return None
        is_whole = manifest["fingerprint"] == fingerprint and _has_all(manifest, sizes)
        return ref_of(manifest) if is_whole else None

    def current(self, stage: str, key: str) -> Ref | None:
        """The artefact that the pointer of this stage and key names, or ``None``.

        Raises:
            IntegrityError: the pointer is damaged.
            ConfigurationError: as ``format``.
        """
        self.format()
        pointer = f"{self.root}/{stage}/{key}/{CURRENT}"
        if (data := self.bytes_at(pointer)) is None:
            return None
        remedy = "delete it and run the stage again, which points to its artefact anew"
        return ref_of(read_json(data, pointer, REF_FIELDS, remedy=remedy))

    def bytes_at(self, path: str) -> bytes | None:
        """A small file's bytes by its full path, or ``None`` where there is none: one request; asking first would be two."""
        try:
            # To fetch it in several parts, s3fs would ask for its size first.
            data: bytes = self.fs.cat_file(path, max_concurrency=1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return data

    def keys(self, stage: str) -> list[str]:
        """Every key of a stage that has a current artefact, sorted.

        Raises:
            ConfigurationError: as ``format``.
        """
        self.format()
        base = f"{self.root}/{stage}"
        if not self.fs.exists(base):
            return []
        found = self.fs.find(base)
        names = [path[len(base) + 1 : -len(CURRENT) - 1] for path in found if path.endswith(f"/{CURRENT}")]
        return sorted(names)

    def all_manifests(self, stage: str, key: str | None = None) -> Iterator[dict[str, Any]]:
        """Every finished artefact's manifest of a stage, or below a key of it, superseded ones too, by location."""
        base = f"{self.root}/{stage}" if key is None else f"{self.root}/{stage}/{key}"
        if self.fs.exists(base):
            for path in sorted(self.fs.find(base)):
                if path.endswith(f"/{MANIFEST}"):
                    yield self.manifest_at(path[len(self.root) + 1 : -len(MANIFEST) - 1])

    def manifest(self, ref: Ref) -> dict[str, Any]:
        return self.manifest_at(ref.location)

    def manifest_at(self, location: str) -> dict[str, Any]:
        """The manifest in a directory of the record.

        Raises:
            IntegrityError: it is missing or damaged.
        """
        path = f"{self.root}/{location}/{MANIFEST}"
        if (data := self.bytes_at(path)) is None:
            from datamask_pipeline.storage.tombstones import missing

            remedy = "run the stage again to rebuild the artefact"
            raise IntegrityError(missing(self, location, remedy))
        return read_manifest(data, path, remedy="run the stage again to rebuild the artefact")

    def part_names(self, ref: Ref) -> list[str]:
        """The artefact's parts in canonical order."""
        return [part["name"] for part in self.manifest(ref)["parts"]]

    def part_paths(self, ref: Ref) -> list[str]:
        """Paths of the Parquet parts, in canonical order, as this store's file system spells them."""
        return [f"{self.root}/{ref.location}/{name}.parquet" for name in self.part_names(ref)]

    def part_file(self, ref: Ref, name: str) -> pq.ParquetFile:
        """One part, opened."""
        return self.open_parquet(f"{self.root}/{ref.location}/{name}.parquet")

    def open_parquet(self, path: str) -> pq.ParquetFile:
        """A Parquet file of this store by its path, opened.

        Raises:
            IntegrityError: it is missing, or no Parquet file.
            StorageError: the file system refuses.
        """
        with reading(path):
            # Opened by Arrow, each file would be looked up twice.
            source = path if self.is_local else self.fs.open(path)
            # Read ahead, Arrow would keep the compressed bytes of all row groups to the end.
            return pq.ParquetFile(source, pre_buffer=not self.is_local)

    def iter_batches(
        self, ref: Ref, columns: Sequence[str] | None = None, *, batch_rows: int = ROW_GROUP_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """The rows in canonical order, one bounded batch at a time."""
        for path in self.part_paths(ref):
            with self.open_parquet(path) as part, reading(path):
                yield from part.iter_batches(
                    batch_size=batch_rows, columns=list(columns) if columns else None
                )

    def read_table(self, ref: Ref, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows at once: for small tables and for columns known to fit."""
        tables = []
        for path in self.part_paths(ref):
            with self.open_parquet(path) as part, reading(path):
                tables.append(part.read(columns=list(columns) if columns else None))
        return pa.concat_tables(tables, promote_options="none") if tables else pa.table({})

    def file_path(self, ref: Ref, name: str) -> str:
        """Path of a file that stands beside the parts, as this store's file system spells it."""
        return f"{self.root}/{ref.location}/{name}"

    def local_copy(self, ref: Ref, name: str, directory: Path) -> Path:
        """A file or directory of an artefact on local disk; downloaded only when the store is remote.

        Raises:
            IntegrityError: it is lost, or holds other bytes than were written.
            StorageError: the disk is full or the file system refuses.
        """
        if self.is_local:
            return Path(self.file_path(ref, name))
        target = directory / name
        if not target.exists():
            self._download(ref, name, target)
        return target

    def _download(self, ref: Ref, name: str, target: Path) -> None:
        """A verified copy; under its own name only once it is whole."""
        path = self.file_path(ref, name)
        private = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
        try:
            with storage_errors(str(target)):
                target.parent.mkdir(parents=True, exist_ok=True)
                with finding(path):
                    self.fs.get(path, str(private), recursive=self.fs.isdir(path))
                for file, sha256 in _stated_files(self.manifest(ref), name).items():
                    if not (private / file).is_file() or sha256_file(private / file) != sha256:
                        place = PurePosixPath(path) / file
                        raise IntegrityError(
                            f"{place} is lost or holds other bytes than were written; {AGAIN}"
                        )
                private.replace(target)
        finally:
            shutil.rmtree(private, ignore_errors=True)
            private.unlink(missing_ok=True)

    # -- writing -----------------------------------------------------------------------------------------

    def begin(
        self,
        stage: str,
        key: str,
        *,
        version: str,
        config: Mapping[str, Any],
        inputs: Mapping[str, Ref | str],
        digests: Mapping[str, str] | None = None,
    ) -> "ArtefactBuilder":
        """Start, or resume, the artefact that these settings describe.

        Args:
            stage: Stage name.
            key: Partition key; may hold ``/``.
            version: The stage's version.
            config: The configuration that affects the result, as JSON values.
            inputs: The artefacts read, by name; a plain string is taken as a content digest.
            digests: For an input of which only some columns are read: the digest of those, hashed instead of its
                content digest.
        """
        hashed = {
            name: item.content_digest if isinstance(item, Ref) else item for name, item in inputs.items()
        }
        value, basis = lineage.fingerprint(
            stage, version, lineage.plain(config), hashed | dict(digests or {})
        )
        refs = {name: item.as_dict() if isinstance(item, Ref) else item for name, item in inputs.items()}
        from datamask_pipeline.storage.builder import ArtefactBuilder

        return ArtefactBuilder(self, stage, key, value, basis, refs)

    def point_to(self, ref: Ref) -> None:
        """Make an artefact the current one of its stage and key.

        Raises:
            StorageError: this process is an orphan; or as ``staged``.
        """
        refuse_orphans()
        self.publish_bytes(f"{ref.stage}/{ref.key}/{CURRENT}", pretty_json(ref.as_dict()).encode())

    @contextlib.contextmanager
    def staged(self, relative: str) -> Iterator[Path]:
        """A private local path; published at ``relative`` when the block ends well, else removed.

        The first file that is written to a record states its format.

        Raises:
            StorageError: the disk is full or the file system refuses.
            TakenOverError: this run gave no sign of life for so long that another took its work over.
            ConfigurationError: as ``format``.
        """
        if relative != FORMAT_FILE:
            self._state_format()
        directory = self._staging()
        name = f"{machine_label()}.{os.getpid()}.{uuid.uuid4().hex}{Path(relative).suffix}"
        with storage_errors(relative):
            directory.mkdir(parents=True, exist_ok=True)
            private = directory / name
            try:
                yield private
                self._refuse_lost_leases()
                self._publish(private, f"{self.root}/{relative}")
            finally:
                private.unlink(missing_ok=True)

    def _state_format(self) -> None:
        """Before anything of this format stands in a record, it says so."""
        if self.format() < FORMAT:
            self.publish_bytes(FORMAT_FILE, format_bytes())
            self._format = FORMAT

    def _refuse_lost_leases(self) -> None:
        for lease in self._held:
            lease.check()

    def publish_bytes(self, relative: str, data: bytes) -> None:
        """Write a small file at once."""
        with self.staged(relative) as private:
            private.write_bytes(data)

    def publish_tree(self, directory: Path, relative: str) -> None:
        """Publish every file of a local directory under ``relative``; the directory is left as it is."""
        for path in sorted(p for p in directory.rglob("*") if p.is_file()):
            self.publish_file(path, f"{relative}/{path.relative_to(directory).as_posix()}")

    def publish_file(self, path: Path, relative: str) -> None:
        """Publish a local file; it is left as it is."""
        with self.staged(relative) as private:
            shutil.copyfile(path, private)

    def copy_file(self, source: str, target: str) -> None:
        """Publish a file of the record a second time, as it is; both paths are relative to the root.

        Raises:
            IntegrityError: it is missing.
            StorageError, TakenOverError, ConfigurationError: as ``staged``.
        """
        path = f"{self.root}/{source}"
        if self.is_local:
            with self.staged(target) as private, finding(path):
                link_or_copy(path, private)
            return
        self._state_format()
        with storage_errors(target), finding(path):
            self._refuse_lost_leases()
            self.fs.cp_file(path, f"{self.root}/{target}")

    def scratch(self, ref_location: str) -> Path:
        """A local directory for checkpoints of unfinished work on one artefact; survives a kill.

        Raises:
            StorageError: the file system refuses.
        """
        directory = self._local("scratch") / ref_location
        with storage_errors(str(directory)):
            directory.mkdir(parents=True, exist_ok=True)
        return directory

    def remove_notes(self, location: str) -> None:
        """Remove what was kept in a remote store for whoever goes on with an artefact; a local one's is its scratch."""
        folder = f"{self.root}/.scratch/{location}"
        if not self.is_local and self.fs.exists(folder):
            self.fs.rm(folder, recursive=True)

    def cached(self, name: str) -> Path:
        """Where a local copy of a remote file lies or will lie; it may be deleted whenever no run is at work."""
        return self._local("cache") / name

    @contextlib.contextmanager
    def exclusive(self, stage: str, key: str, *, wait: bool = True, tell: bool = True) -> Iterator[bool]:
        """Inside it, no other process on any machine is at work on that stage and key.

        Args:
            stage: The stage.
            key: The key.
            wait: Wait for one that is.
            tell: Say in the log that it waits.

        Yields:
            Whether it is this process's turn; always so where it waits.

        Raises:
            StorageError: this process became an orphan while it waited.
            TakenOverError: what was done inside failed, and another run had taken the work over: it removes what this one
                writes to.
        """
        check_key(stage, key)
        with contextlib.ExitStack() as stack:
            with storage_errors(self.leases.folder):
                lease = stack.enter_context(self.leases.hold(f"{stage}/{key}", wait=wait, tell=tell))
            refuse_orphans()
            if lease is not None:
                self._held.append(lease)
                stack.callback(self._held.remove, lease)
            try:
                yield lease is not None
            except TakenOverError:
                raise
            except Exception as error:
                if lease is not None and lease.is_surely_lost():
                    raise lease.taken_over() from error
                raise

    def is_busy(self, stage: str, key: str) -> bool:
        """Whether anybody is at work on that stage and key, or on a shard of it; nobody is waited for."""
        return self.leases.is_held(f"{stage}/{key}") or self.leases.are_held(f"{stage}/{key}/{SHARDS}")

    def forget_shards(self, stage: str, key: str) -> None:
        """Remove the leases of a crawl's shards, unless somebody holds one."""
        if not self.leases.are_held(f"{stage}/{key}/{SHARDS}"):
            self.leases.forget(f"{stage}/{key}/{SHARDS}")

    def sweep(self) -> int:
        """Remove what nobody will use again; returns how many things.

        That is staging files of this machine's writers that no longer live, those of other machines that have not changed
        for a day, and checkpoints of the current artefact of their stage and key, as another machine finished it, or that
        were last written before it: work that was given up for other settings. The next run goes on from all others.
        """
        return self._sweep_staging() + self._sweep_scratch()

    def _sweep_scratch(self) -> int:
        scratch, removed = self._local("scratch"), 0
        for stage in sorted(path.name for path in scratch.iterdir()) if scratch.is_dir() else []:
            for key in self.keys(stage):
                folder = scratch / stage / key
                if _is_empty(folder):
                    continue
                with self.exclusive(stage, key, wait=False) as is_idle:
                    if is_idle and folder.is_dir() and not self.leases.are_held(f"{stage}/{key}/{SHARDS}"):
                        finished, moment = self._written(stage, key)
                        for each in folder.iterdir():
                            # No two clocks are compared for one that is finished.
                            removed += _remove_before(math.inf if each.name == finished else moment)(each)
        return removed

    def _written(self, stage: str, key: str) -> tuple[str, float]:
        """The current artefact's folder in its key's, and when it was finished, in nanoseconds; 0: none, or damaged."""
        try:
            ref = self.current(stage, key)
            if ref is not None:
                return ref.location.rpartition("/")[2], int(self.manifest(ref)["written_at_ns"])
        except IntegrityError:
            pass
        return "", 0

    def _sweep_staging(self) -> int:
        staging, host = self._staging(), f"{machine_label()}."
        removed = 0
        for path in sorted(staging.iterdir()) if staging.is_dir() else []:
            pid = path.name.removeprefix(host).split(".", 1)[0] if path.name.startswith(host) else ""
            is_left = not is_alive(int(pid)) if pid.isdigit() else _is_abandoned(path)
            # Writers leave files only; a directory is somebody else's.
            if is_left and not path.is_dir():
                path.unlink(missing_ok=True)
                removed += 1
        return removed

    def _staging(self) -> Path:
        """Where files are written before they are published."""
        return self._local("staging")

    def _local(self, purpose: str) -> Path:
        """A hidden folder of the record; of a remote one, a folder in the cache."""
        if self.is_local:
            return Path(self.root) / f".{purpose}"
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        return cache / "datamask" / purpose / lineage.sha256_text(self.root_url)[:16]

    def _publish(self, private: Path, target: str) -> None:
        if not self.is_local:
            self.fs.put_file(str(private), target)
            return
        sync(private)
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        os.replace(private, target)


def refuse_orphans() -> None:
    """Keep a step whose run was killed from beginning, or from pointing to, what a later run may have made anew.

    Steps are processes that `multiprocessing` starts; one that a shell started, and left behind, is no orphan.

    Raises:
        StorageError: the process that started this one has ended.
    """
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        raise StorageError(
            f"process {parent.pid}, which started this step, has ended; the next run makes what this one was to make"
        )


def require(store: Store, stage: str, key: str) -> Ref:
    """The current artefact of a stage and key.

    Raises:
        ConfigurationError: that stage has not run for this key.
    """
    ref = store.current(stage, key)
    if ref is None:
        have = ", ".join(store.keys(stage)) or "none"
        raise ConfigurationError(
            f"stage {stage!r} has no artefact for {key!r} in {store.root_url} (there are: {have}); "
            f"run that stage first"
        )
    return ref


def _has_all(manifest: Mapping[str, Any], sizes: Mapping[str, int]) -> bool:
    """Whether every part, array, tree and file beside them has the bytes its manifest states.

    Args:
        manifest: The manifest; one of an earlier version does not name the files beside the parts.
        sizes: By path in the artefact.
    """
    wanted = {file: size for part in manifest["parts"] for file, size in part_files(part).items()}
    wanted |= {file["name"]: file["bytes"] for file in manifest.get("files", ())}
    if any(sizes.get(file) != size for file, size in wanted.items()):
        return False
    for tree in manifest["trees"]:
        found = [sizes.get(f"{tree['name']}/{path}") for path in tree["files"]]
        if None in found or sum(size for size in found if size is not None) != tree["bytes"]:
            return False
    return True


def _stated_files(manifest: Mapping[str, Any], name: str) -> dict[str, str]:
    """SHA-256 of the files of an artefact under a name, by path from there; the first manifests state none beside trees."""
    stated = {
        f"{tree['name']}/{path}": sha256
        for tree in manifest["trees"]
        for path, sha256 in tree["files"].items()
    }
    stated |= {file["name"]: file["sha256"] for file in manifest.get("files", ())}
    below = PurePosixPath(name)
    return {
        str(PurePosixPath(path).relative_to(below)): sha256
        for path, sha256 in stated.items()
        if PurePosixPath(path).is_relative_to(below)
    }


def _is_abandoned(path: Path) -> bool:
    """Whether another machine's private file has not been written for `ABANDONED_SECONDS`, by the file system's clock."""
    with tempfile.NamedTemporaryFile(dir=path.parent) as now:
        try:
            return os.stat(now.name).st_mtime - path.stat().st_mtime > ABANDONED_SECONDS
        except FileNotFoundError:
            return False


def _is_empty(folder: Path) -> bool:
    """Whether nothing lies in a folder, or it is gone, as where a purge removes it."""
    try:
        return not any(folder.iterdir())
    except FileNotFoundError:
        return True


def _remove_before(moment_ns: float) -> Callable[[Path], bool]:
    """Removes a directory in which nothing was written since; says whether it did."""

    def remove(directory: Path) -> bool:
        times = (path.stat().st_mtime_ns for path in [directory, *directory.rglob("*")])
        if not directory.is_dir() or max(times) >= moment_ns:
            return False
        shutil.rmtree(directory, ignore_errors=True)
        return True

    return remove
