"""Rows of one document out of an artefact, found by its index and checked byte by byte. Knows no stage.

What is read is held against the digests in the manifest, and the manifest against its own; an artefact of an earlier
version without index is scanned, after its parts were hashed as a whole.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from datamask_pipeline.errors import first_line
from datamask_pipeline.storage.pieces import PIECES_FILE, CheckedFile, split
from datamask_pipeline.storage.ref import MANIFEST, Ref, pretty_json, ref_of
from datamask_pipeline.storage.row_index import (
    CONTENT,
    ID,
    INDEX_FILES,
    URL,
    find,
    indexed_columns,
    key_of,
    sizes_of,
)
from datamask_pipeline.storage.store import Store
from datamask_pipeline.storage.whole import altered, check_part


class CheckedTables:
    """The record's tables, read row by row; a byte that is not the one that was written is an error.

    Args:
        store: The record.

    Attributes:
        scanned: Locations that were scanned for want of an index.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.scanned: list[str] = []
        self._manifests: dict[str, dict[str, Any]] = {}
        self._digests: dict[str, dict[str, bytes]] = {}
        self._opened: dict[str, pq.ParquetFile] = {}
        self._last: tuple[tuple[str, int, tuple[str, ...]], pa.Table] | None = None

    def manifest(self, location: str) -> dict[str, Any]:
        """The manifest in a directory of the record.

        Raises:
            IntegrityError: it is missing or damaged, or says something else than was written.
        """
        if location not in self._manifests:
            manifest = self.store.manifest_at(location)
            spelt = self.store.fs.cat_file(f"{self.store.root}/{location}/{MANIFEST}")
            if "manifest_digest" in manifest and spelt != pretty_json(manifest).encode():
                raise altered(self.store, f"{location}/{MANIFEST}", "says something else than was written")
            self._manifests[location] = manifest
        return self._manifests[location]

    def current(self, stage: str, key: str) -> Ref | None:
        """As ``Store.current``, of a pointer that says what the manifest says.

        Raises:
            IntegrityError: it says something else, or one of the two is damaged.
        """
        ref = self.store.current(stage, key)
        if ref is not None and ref_of(self.manifest(ref.location)) != ref:
            raise altered(
                self.store,
                f"{stage}/{key}/current.json",
                f"says something else than {ref.location}/{MANIFEST}",
            )
        return ref

    def rows(
        self,
        location: str,
        document_id: str,
        columns: Sequence[str] | None = None,
        *,
        without: Sequence[str] = (),
        by: str = ID,
    ) -> Iterator[dict[str, Any]]:
        """The rows of a document, in canonical order, each read when it is asked for.

        Args:
            location: The artefact's directory.
            document_id: Its id.
            columns: The columns wanted; all of them if not given.
            without: Columns to leave out.
            by: The column that names the document; by another than `id`, rows that name themselves are left out.

        Yields:
            Each row by column, and as ``record`` where it stands: ``artefact``, ``part`` and ``row``.

        Raises:
            IntegrityError: what was read is not what was written.
        """
        wanted = None if columns is None else list(dict.fromkeys([*columns, by]))
        for part, row in self._places(location, document_id, by):
            values = self.row(location, part["name"], row, wanted, without=without)
            if values[by] == document_id:
                yield values

    def row(
        self,
        location: str,
        part: str,
        row: int,
        columns: Sequence[str] | None = None,
        *,
        without: Sequence[str] = (),
    ) -> dict[str, Any]:
        """One row of a part by its number, as ``rows`` gives it."""
        opened = self._open(location, part)
        names = [name for name in columns or opened.schema_arrow.names if name not in without]
        first = 0
        for number in range(opened.metadata.num_row_groups):
            last = first + opened.metadata.row_group(number).num_rows
            if row < last:
                group = self._read(opened, f"{location}/{part}.parquet", number, names)
                values = group.slice(row - first, 1).to_pylist()[0]
                return values | {
                    "record": {"artefact": location, "part": f"{part}.parquet", "row": row},
                }
            first = last
        raise altered(self.store, f"{location}/{part}.parquet", f"has no row {row}, which its index names")

    def num_documents(self, location: str, value: str, by: Literal["content_hash", "url"]) -> int | None:
        """How many rows have a text, by its content hash, or a URL at a domain or below it; ``None``: no index tells.

        Raises:
            IntegrityError: what was read is not what was written.
        """
        stated = self._index(location, by)
        if stated is None:
            return None
        if by == CONTENT:
            return sum(1 for _ in self.rows(location, value, [CONTENT], by=CONTENT))
        return sum(self._found(location, stated, key_of(URL, value)))

    def close(self) -> None:
        """Close what was opened."""
        for opened in self._opened.values():
            opened.close(force=True)
        self._opened.clear()

    def batches(self, location: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows in canonical order, one bounded batch at a time, checked as rows are."""
        for part in self.manifest(location)["parts"]:
            path = f"{location}/{part['name']}.parquet"
            try:
                yield from self._open(location, part["name"]).iter_batches(
                    columns=list(columns), use_threads=False
                )
            except (pa.ArrowException, OSError) as error:
                raise altered(self.store, path, f"cannot be read: {first_line(error)}") from error

    def _places(
        self, location: str, document_id: str, column: str
    ) -> Iterator[tuple[Mapping[str, Any], int]]:
        """Part and row of what may be the document's rows."""
        stated = self._index(location, column)
        if stated is None:
            yield from self._scan(location, document_id, column)
            return
        rows, first = self._found(location, stated, key_of(column, document_id)), 0
        for part in self.manifest(location)["parts"]:
            yield from ((part, row - first) for row in rows if first <= row < first + part["rows"])
            first += part["rows"]

    def _index(self, location: str, column: str) -> Mapping[str, Any] | None:
        """What the manifest states of the index by a column, if there is one."""
        files: Iterable[Mapping[str, Any]] = self.manifest(location).get("files", ())
        return next((file for file in files if file["name"] == INDEX_FILES[column]), None)

    def _found(self, location: str, index: Mapping[str, Any], key: int) -> list[int]:
        with self._checked(location, index["name"]) as stream:
            return find(stream, index["bytes"], key)

    def _scan(self, location: str, document_id: str, column: str) -> Iterator[tuple[Mapping[str, Any], int]]:
        for part in self.manifest(location)["parts"]:
            opened = self._open(location, part["name"])
            if column not in indexed_columns(opened.schema_arrow):
                continue
            if location not in self.scanned:
                self.scanned.append(location)
            first = 0
            for batch in opened.iter_batches(columns=list(dict.fromkeys([column, ID]))):
                same = pc.equal(batch.column(column), document_id)
                if column != ID:
                    same = pc.and_kleene(same, pc.not_equal(batch.column(ID), document_id))
                yield from ((part, first + int(place)) for place in pc.indices_nonzero(same).to_pylist())
                first += batch.num_rows

    def _open(self, location: str, part: str) -> pq.ParquetFile:
        path = f"{location}/{part}.parquet"
        if path not in self._opened:
            if self._digests_of(location):
                source: Any = self._checked(location, f"{part}.parquet")
            else:
                parts = self.manifest(location)["parts"]
                check_part(self.store, location, next(each for each in parts if each["name"] == part))
                source = self.store.fs.open(f"{self.store.root}/{path}", "rb")
            try:
                self._opened[path] = pq.ParquetFile(source)
            except (pa.ArrowException, OSError) as error:
                raise altered(self.store, path, f"cannot be read: {first_line(error)}") from error
        return self._opened[path]

    def _read(self, opened: pq.ParquetFile, path: str, group: int, names: list[str]) -> pa.Table:
        """A row group; the last one is kept, as rows of one document often lie side by side."""
        key = (path, group, tuple(names))
        if self._last is None or self._last[0] != key:
            try:
                self._last = key, opened.read_row_group(group, columns=names, use_threads=False)
            except (pa.ArrowException, OSError) as error:
                raise altered(self.store, path, f"cannot be read: {first_line(error)}") from error
        return self._last[1]

    def _checked(self, location: str, name: str) -> CheckedFile:
        path = f"{location}/{name}"
        manifest = self.manifest(location)
        sizes = sizes_of(manifest)
        try:
            size = self.store.fs.size(f"{self.store.root}/{path}")
        except FileNotFoundError:
            raise altered(self.store, path, "is missing") from None
        if size != sizes[name]:
            raise altered(self.store, path, f"has {size} bytes where {sizes[name]} were written")
        stream = self.store.fs.open(f"{self.store.root}/{path}", "rb", block_size=1 << 20)
        return CheckedFile(stream, size, self._digests_of(location)[name], f"{self.store.root}/{path}")

    def _digests_of(self, location: str) -> dict[str, bytes]:
        """The digests of an artefact's pieces by file; none where an earlier version wrote it."""
        if location not in self._digests:
            manifest = self.manifest(location)
            stated = next((file for file in manifest.get("files", ()) if file["name"] == PIECES_FILE), None)
            digests = b"" if stated is None else self._whole(f"{location}/{PIECES_FILE}", stated["sha256"])
            self._digests[location] = {} if stated is None else split(digests, sizes_of(manifest))
        return self._digests[location]

    def _whole(self, path: str, sha256: str) -> bytes:
        try:
            data: bytes = self.store.fs.cat_file(f"{self.store.root}/{path}")
        except FileNotFoundError:
            raise altered(self.store, path, "is missing") from None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise altered(self.store, path, "holds other bytes than were written to it")
        return data
