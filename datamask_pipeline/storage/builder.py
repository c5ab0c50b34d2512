"""Builds one artefact: parts, arrays, directories, and the manifest last. Knows no stage."""

import contextlib
import hashlib
import json
import shutil
import time
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from datamask_pipeline import lineage
from datamask_pipeline.errors import DataMaskError, IntegrityError, StorageError
from datamask_pipeline.hardware import give_free_pages_back
from datamask_pipeline.storage.earlier import Earlier, earlier_parts, is_whole
from datamask_pipeline.storage.hashed import sha256_file
from datamask_pipeline.storage.npy import write_blocks
from datamask_pipeline.storage.pieces import PIECES_FILE, digests_of
from datamask_pipeline.storage.ref import (
    MANIFEST,
    SHARDS,
    Ref,
    location_of,
    manifest_digest,
    part_files,
    pretty_json,
    ref_of,
)
from datamask_pipeline.storage.refusals import OF_WRITING
from datamask_pipeline.storage.row_index import (
    INDEX_FILES,
    Begun,
    StatedIndex,
    indexed_columns,
    stated_indexes,
    write_index,
)
from datamask_pipeline.storage.store import ROW_GROUP_ROWS, Store

Item = TypeVar("Item")

#: What the record of a part holds.
PART_FIELDS: Final = frozenset({"name", "rows", "bytes", "digest", "counts"})
_INDEXES_AT_ONCE: Final = 2


class ArtefactBuilder:
    """One artefact in the making; parts already published by an earlier, killed attempt are kept."""

    def __init__(
        self,
        store: Store,
        stage: str,
        key: str,
        fingerprint: str,
        basis: dict[str, Any],
        inputs: dict[str, Any],
    ) -> None:
        self.store, self.stage, self.key, self.fingerprint = store, stage, key, fingerprint
        self.location = location_of(stage, key, fingerprint)
        self._basis, self._inputs = basis, inputs
        self._files: dict[str, dict[str, Any]] = {}
        # Not the clock of the day, which may be set meanwhile.
        self._started = time.monotonic()

    def finished(self) -> Ref | None:
        """The artefact if it exists already; it is made the current one. Nothing needs to be computed."""
        ref = self.store.find(self.stage, self.key, self.fingerprint)
        if ref is not None and not self._is_current(ref):
            self.store.point_to(ref)
            self.store.again.add(ref.location)
        return ref

    def _is_current(self, ref: Ref) -> bool:
        try:
            return self.store.current(self.stage, self.key) == ref
        except IntegrityError:
            return False  # a damaged pointer is written anew

    def scratch(self) -> Path:
        """Local directory for checkpoints inside this artefact's work; removed by ``commit``."""
        return self.store.scratch(self.location)

    def writing(self, name: str, *, wait: bool) -> contextlib.AbstractContextManager[bool]:
        """Inside it, nobody else on any machine writes the part; arguments and value as of ``Store.exclusive``."""
        return self.store.exclusive(self.stage, f"{self.key}/{SHARDS}/{name}", wait=wait, tell=False)

    def write_note(self, name: str, private: Path) -> None:
        """Publish a file for whoever goes on with this artefact, on any machine; removed by ``commit``.

        Args:
            name: Its name.
            private: A file on this disk; it is moved.
        """
        with self.store.staged(self._note(name)) as staged:
            shutil.move(private, staged)

    def has_note(self, name: str) -> bool:
        """Whether a note is there."""
        return bool(self.store.fs.exists(f"{self.store.root}/{self._note(name)}"))

    def open_note(self, name: str) -> Any:
        """A note, opened for reading."""
        return self.store.fs.open(f"{self.store.root}/{self._note(name)}", "rb")

    def _note(self, name: str) -> str:
        return f".scratch/{self.location}/{name}"

    def part_path(self, name: str) -> str:
        """Where a part lies or will lie, as the store's file system spells it."""
        return f"{self.store.root}/{self.location}/{name}.parquet"

    def open_part(self, name: str) -> pq.ParquetFile:
        """A part that is published already, opened; the artefact itself need not be finished."""
        return self.store.open_parquet(self.part_path(name))

    def part(self, name: str) -> dict[str, Any] | None:
        """The record of a part that is already published whole, else ``None``, as for a damaged one."""
        path = self.part_path(name)
        if (data := self.store.bytes_at(path + ".json")) is None:
            return None
        try:
            record = json.loads(data)
        except ValueError:
            return None
        if not isinstance(record, dict) or not set(record) >= PART_FIELDS:
            return None
        folder = f"{self.store.root}/{self.location}"
        sizes = {file: self._size(f"{folder}/{file}") for file in part_files(record)}
        return record if sizes == part_files(record) else None

    def parts(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Records of parts that are all published.

        Raises:
            IntegrityError: one is not.
        """
        records = [self.part(name) for name in names]
        for name, record in zip(names, records, strict=True):
            if record is None:
                raise IntegrityError(
                    f"part {name} of {self.stage} of {self.key} vanished while others were written"
                )
        return [record for record in records if record is not None]

    def _size(self, path: str) -> int | None:
        return int(self.store.fs.size(path)) if self.store.fs.exists(path) else None

    def write_array(
        self, name: str, blocks: Iterable[NDArray[Any]], *, dtype: str, shape: tuple[int, ...]
    ) -> dict[str, Any]:
        """Write the array that belongs to a part, as `<part>.npy`.

        Args:
            name: The part's name.
            blocks: The array's rows, in order; an exception raised while they are drawn leaves nothing behind.
            dtype: Type of its numbers.
            shape: Shape of the whole.

        Returns:
            Its record, for ``write_part``: a file that no part's record names does not count.
        """
        relative = f"{self.location}/{name}.npy"
        with self.store.staged(relative) as private:
            with private.open("wb") as stream:
                record = write_blocks(stream, _drawn(blocks, relative), dtype, shape)
            record |= {"bytes": private.stat().st_size}
        self.store.made.add(self.location)
        return record

    def write_part(
        self,
        name: str,
        batches: Iterable[pa.RecordBatch | pa.Table],
        schema: pa.Schema,
        *,
        counts: Mapping[str, int] | None = None,
        replace: bool = False,
        plain: Sequence[str] = (),
        identity: Sequence[str] = (),
        array: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Write one part, or keep it when it is there already.

        Args:
            name: The part's name, without suffix.
            batches: Its rows; an exception raised while they are drawn leaves nothing behind.
            schema: Their schema; of dictionaries (categories) the values are stored.
            counts: Counters for the part's record; read after the batches are drained, so a mapping that
                the producer fills as it goes is fine.
            replace: Write it even when it is there already; its rows may be drawn from the old one.
            plain: Columns whose values hardly repeat; a dictionary and bounds of them would be written for nothing.
            identity: Columns with a digest of their own, for a stage that reads no others.
            array: Record of the array that ``write_array`` wrote for this part.

        Returns:
            The part's record: name, rows, counts, digest of the rows, bytes and SHA-256 of the file; ``identity_digest``
            where columns are named, the array's record where there is one.
        """
        kept = None if replace else self.part(name)
        if kept is not None:
            return kept
        # A dictionary keeps the values of rows that were rejected, erased or left out since it was made.
        stored = pa.schema(list(map(_of_values, schema)), schema.metadata)
        digest = lineage.TableDigest(stored)
        relative = f"{self.location}/{name}.parquet"
        with self.store.staged(relative) as private:
            repeating = [name for name in schema.names if name not in plain] if plain else True
            with (
                pq.ParquetWriter(
                    private,
                    stored,
                    compression="zstd",
                    version="2.6",
                    use_dictionary=repeating,
                    write_statistics=repeating,
                ) as writer,
                # Closed here: what draws rows may write beside them, and find no room for its end either.
                contextlib.closing(_drawn(batches, relative)) as drawn,
            ):
                for batch in drawn:
                    table = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
                    if stored != schema:
                        table = table.cast(stored)
                    digest.update(table)
                    writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
            size, sha256 = private.stat().st_size, sha256_file(private)
        record = {
            "name": name,
            "rows": digest.num_rows,
            "bytes": size,
            "sha256": sha256,
            "digest": digest.hexdigest(),
            "counts": dict(counts or {}),
        }
        if identity:
            record["identity_digest"] = digest.hexdigest(identity)
        if array is not None:
            record["array"] = dict(array)
        self.store.publish_bytes(relative + ".json", pretty_json(record).encode())
        self.store.made.add(self.location)
        return record

    def carry_parts(self, ref: Ref) -> list[dict[str, Any]]:
        """All parts of another artefact, as they are: no row is read, nor a byte where the file system has hard links.

        They must be the first ones of this artefact; whoever commits names the other artefact in ``carried``.
        """
        records = []
        for record in self.store.manifest(ref)["parts"]:
            records.append(self.part(record["name"]) or self._carry(ref, record))
        return records

    def earlier(self, by_parts: Sequence[str]) -> Earlier | None:
        """What the current artefact of this stage and key has in common with this one; arguments as of `earlier_parts`."""
        return earlier_parts(self.store, self.stage, self.key, self._basis, self._inputs, by_parts)

    def carry_part(self, earlier: Earlier, name: str) -> bool:
        """Take a part over as it is; says whether it could be: there, and holding still what was written."""
        record = earlier.parts.get(name)
        if record is None or not is_whole(self.store, earlier.ref.location, record):
            return False
        self._carry(earlier.ref, record)
        return True

    def _carry(self, ref: Ref, record: Mapping[str, Any]) -> dict[str, Any]:
        for file in part_files(record):
            self.store.copy_file(f"{ref.location}/{file}", f"{self.location}/{file}")
        carried = {**record, "carried": True}
        self.store.publish_bytes(
            f"{self.location}/{record['name']}.parquet.json", pretty_json(carried).encode()
        )
        self.store.made.add(self.location)
        return carried

    def write_file(self, name: str, data: bytes | Path) -> None:
        """A file beside the parts that is not part of the content digest, from bytes or a file: a plot, a report."""
        if isinstance(data, Path):
            self.store.publish_file(data, f"{self.location}/{name}")
            self._files[name] = {"name": name, "bytes": data.stat().st_size, "sha256": sha256_file(data)}
            return
        self.store.publish_bytes(f"{self.location}/{name}", data)
        self._files[name] = {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def write_folder(
        self, name: str, directory: Path, *, carried: Ref | None = None, unchanged: Collection[str] = ()
    ) -> None:
        """A directory of files beside the parts that are not part of the content digest, e.g. an index.

        Args:
            name: The folder's name.
            directory: The files; left as they are.
            carried: An artefact with such a folder.
            unchanged: Names in the artefact, e.g. ``index/00000/rows.npy``, of its files that are the same here: they are
                carried over as they stand there, and not read.
        """
        known = (
            {} if carried is None else {file["name"]: file for file in self.store.manifest(carried)["files"]}
        )
        for path in sorted(path for path in directory.rglob("*") if path.is_file()):
            relative = f"{name}/{path.relative_to(directory).as_posix()}"
            if carried is not None and relative in unchanged:
                self.store.copy_file(f"{carried.location}/{relative}", f"{self.location}/{relative}")
                self._files[relative] = known[relative]
                continue
            self.write_file(relative, path)

    def write_tree(self, name: str, directory: Path) -> dict[str, Any]:
        """A directory of files that *is* content, e.g. a model.

        Returns:
            Its record: name, bytes and a digest over every file's relative path and SHA-256.
        """
        self.store.publish_tree(directory, f"{self.location}/{name}")
        files = sorted(path for path in directory.rglob("*") if path.is_file())
        named = [(path.relative_to(directory).as_posix(), sha256_file(path)) for path in files]
        return {
            "name": name,
            "bytes": sum(path.stat().st_size for path in files),
            "digest": lineage.combined_digest(named),
            "files": dict(named),
        }

    def _write_index(
        self, parts: Sequence[str], more: Sequence[str], carried: Ref | None, rows_of: Ref | None
    ) -> None:
        """The indexes of rows by document, and digests of what is read by them, where the parts name documents."""
        named = [*indexed_columns(self._schema_of(parts[0])), *more] if parts else []
        columns = [column for column in INDEX_FILES if column in named]
        begun = None if carried is None else Begun.of(self.store, carried, columns)
        digests = bytearray(b"" if begun is None else begun.digests)
        paths = [self.part_path(name) for name in parts[0 if begun is None else begun.num_parts :]]
        for path in paths if columns else []:
            with self.store.fs.open(path, "rb") as stream:
                digests += digests_of(stream)
        known = {} if rows_of is None else stated_indexes(self.store, rows_of)
        give_free_pages_back()
        with ThreadPoolExecutor(_INDEXES_AT_ONCE) as pool:
            indexed = partial(self._indexed, paths, begun, known)
            for column, (record, pieces) in zip(columns, pool.map(indexed, columns), strict=True):
                self._files[INDEX_FILES[column]] = record
                digests += pieces
        if columns:
            self.write_file(PIECES_FILE, bytes(digests))

    def _indexed(
        self, paths: Sequence[str], begun: Begun | None, known: Mapping[str, StatedIndex], column: str
    ) -> tuple[dict[str, Any], bytes]:
        """Write the index by a column: its record, and the digests of what is read of it."""
        name = INDEX_FILES[column]
        if column in known and known[column].is_whole(self.store):
            self.store.copy_file(known[column].path, f"{self.location}/{name}")
            return known[column].record, known[column].digests
        with self.store.staged(f"{self.location}/{name}") as private:
            record = write_index(self.store, paths, column, private, self.scratch(), begun)
            with private.open("rb") as stream:
                return {"name": name, **record}, digests_of(stream)

    def _schema_of(self, part: str) -> pa.Schema:
        with self.open_part(part) as opened:
            return opened.schema_arrow

    def commit(
        self,
        parts: Sequence[Mapping[str, Any]],
        *,
        trees: Sequence[Mapping[str, Any]] = (),
        counts: Mapping[str, int] | None = None,
        metadata: Mapping[str, Any] | None = None,
        indexes: Sequence[str] = (),
        carried: Ref | None = None,
        rows_of: Ref | None = None,
    ) -> Ref:
        """Write the manifest, point to the artefact, drop its scratch.

        Args:
            parts: Records of the parts, in canonical order.
            trees: Records of the directories.
            counts: Rows in, kept, dropped by reason: ``rows_in`` must equal ``kept`` plus
                every ``dropped_*``.
            metadata: Anything else worth reading; not part of the content digest.
            indexes: Columns of ``INDEX_FILES`` by which it gets an index beside those that every table gets.
            carried: Whose parts the first of these are, as ``carry_parts`` made them: its indexes are gone on from.
            rows_of: An artefact with the same documents in the same rows, if there is one: its indexes are these, too.

        Raises:
            IntegrityError: the counts do not balance.
        """
        totals = dict(counts or {})
        check_balance(self.stage, self.key, totals)
        self._write_index([str(part["name"]) for part in parts], indexes, carried, rows_of)
        arrays = [{"name": f"{part['name']}.npy", **part["array"]} for part in parts if "array" in part]
        content = [(str(item["name"]), str(item["digest"])) for item in [*parts, *arrays, *trees]]
        manifest = {
            "stage": self.stage,
            "key": self.key,
            "fingerprint": self.fingerprint,
            "content_digest": lineage.combined_digest(content),
            "location": self.location,
            "rows": sum(int(part["rows"]) for part in parts),
            "basis": self._basis,
            "inputs": self._inputs,
            "counts": totals,
            "parts": [dict(part) for part in parts],
            "trees": [dict(tree) for tree in trees],
            "files": list(self._files.values()),
            "metadata": lineage.plain(dict(metadata or {})),
            "written_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "written_at_ns": time.time_ns(),
            "wall_seconds": round(time.monotonic() - self._started, 3),
            "rows_carried": sum(int(part["rows"]) for part in parts if part.get("carried")),
        }
        manifest["manifest_digest"] = manifest_digest(manifest)
        self.store.publish_bytes(f"{self.location}/{MANIFEST}", pretty_json(manifest).encode())
        self.store.made.add(self.location)
        ref = ref_of(manifest)
        self.store.point_to(ref)
        shutil.rmtree(self.store.scratch(self.location), ignore_errors=True)
        self.store.remove_notes(self.location)
        self.store.leases.forget(f"{self.stage}/{self.key}/{SHARDS}")
        return ref


def _drawn(items: Iterable[Item], relative: str) -> Generator[Item]:
    """The items; an error of the system while they are read must not be told as one of writing. What is written meanwhile,
    as to scratch, fails as a writer does, which says so around this.
    """
    try:
        yield from items
    except DataMaskError:
        raise
    except OSError as error:
        if error.errno in OF_WRITING:
            raise
        raise StorageError(f"cannot read what {relative} is made from: {error}") from error


def check_balance(stage: str, key: str, counts: Mapping[str, int]) -> None:
    """Refuse counts in which rows were lost or invented.

    Raises:
        IntegrityError: ``rows_in`` is not ``kept`` plus the sum of every ``dropped_*``.
    """
    if "rows_in" not in counts:
        return
    dropped = sum(number for name, number in counts.items() if name.startswith("dropped_"))
    if counts["rows_in"] != counts["kept"] + dropped:
        raise IntegrityError(
            f"{stage} of {key}: {counts['rows_in']} rows in, "
            f"{counts['kept']} kept and {dropped} dropped do not balance"
        )


def _of_values(field: pa.Field) -> pa.Field:
    """The field of the values themselves."""
    return field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
