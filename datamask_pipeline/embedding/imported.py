"""What was computed elsewhere, joined to the documents by their ids: any column, and vectors. Knows no model.

Shape suffixes: N documents of a shard, n of them or of their rows, R rows of all files, F files,
D embedding width.
"""

import contextlib
import functools
import hashlib
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from datamask_pipeline.errors import InputError
from datamask_pipeline.schema import EMBEDDING_DIM
from datamask_pipeline.storage import new_map
from datamask_pipeline.storage.row_index import pairs_of, sorted_pairs
from datamask_pipeline.vectors import are_unit

UTF8 = "write the ids as the documents have them"


class ImportedFiles:
    """A Parquet file, or a folder of them, with one row per document.

    Args:
        location: The file or folder.
        id_column: Column of document ids.
        value_column: Column of what was computed.
        what: What a message calls that, e.g. ``vectors``.

    Attributes:
        settings: What messages call the settings of `location`, `id_column` and `value_column`.
        paths: The files, sorted.
        types: Type of the column of values in each of them.

    Raises:
        InputError: nothing is there, a file is broken, a column is missing, or the ids are no strings.
    """

    settings: ClassVar[tuple[str, str, str]]

    def __init__(self, location: str, id_column: str, value_column: str, *, what: str) -> None:
        root = Path(location)
        # A folder may be called like a file, as Spark's are.
        inside = (path for path in root.rglob("*.parquet") if not path.is_dir())
        self.paths = sorted(inside) if root.is_dir() else [root]
        self.id_column, self.value_column = id_column, value_column
        if not self.paths or not self.paths[0].exists():
            raise InputError(
                f"no Parquet file of {what}", file=location, remedy=f"correct {self.settings[0]}"
            )
        self._states = {path: _state_of(path) for path in self.paths}
        self.types = [self._checked(path) for path in self.paths]

    @property
    def digest(self) -> str:
        """SHA-256 over the files' SHA-256."""
        hashed = hashlib.sha256()
        for path in self.paths:
            with path.open("rb") as stream:
                hashed.update(hashlib.file_digest(stream, "sha256").digest())
        return hashed.hexdigest()

    def batches(self, columns: list[str]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """Columns of all rows, a batch at a time, with its file's place in ``paths`` and its first row there.

        Raises:
            InputError: a file is broken, or another than it was when it was first seen.
        """
        for file, path in enumerate(self.paths):
            first = 0
            for batch in _batches(path, columns):
                yield file, first, batch
                first += batch.num_rows
            self.refuse_changed(path)

    def refuse_changed(self, path: Path) -> None:
        """Refuse a file that was just read and is another than it was when it was first seen: `digest` may be of that one.

        Raises:
            InputError: it is.
        """
        if _state_of(path) != self._states[path]:
            raise InputError(
                "the file changed since the run began",
                file=str(path),
                remedy="run again when nobody writes to it",
            )

    def strings(self, column: pa.Array, path: Path, first: int) -> pa.Array:
        """A batch's ids as strings.

        Args:
            column: The ids.
            path: Their file.
            first: The row in it of the first of them.

        Raises:
            InputError: an id is null or not UTF-8.
        """
        names = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        if names.null_count:
            raise InputError(
                "an id is null",
                file=str(path),
                row=first + int(np.argmax(names.is_null())),
                field=self.id_column,
                remedy="give every row the id of its document",
            )
        try:
            names.validate(full=True)
        except pa.ArrowInvalid as error:
            row, name = next(_not_utf8(names))
            raise InputError(
                "an id is not valid UTF-8",
                file=str(path),
                row=first + row,
                field=self.id_column,
                value=name,
                remedy=UTF8,
            ) from error
        return names.cast(pa.string())

    def repeated(self, file: int, row: int, name: str) -> InputError:
        """What is said of a row that repeats an id."""
        return InputError(
            "an id stands twice",
            file=str(self.paths[file]),
            row=row,
            field=self.id_column,
            value=name,
            remedy="keep one row per document",
        )

    def _checked(self, path: Path) -> pa.DataType:
        """Type of the file's values."""
        try:
            found = pq.read_schema(path)
        except (pa.ArrowException, OSError) as error:
            raise _broken(path, error) from error
        for name, setting in zip((self.id_column, self.value_column), self.settings[1:], strict=True):
            if name not in found.names:
                raise InputError(
                    f"a column is missing; there are: {', '.join(found.names)}",
                    file=str(path),
                    field=name,
                    remedy=f"name the right column in {setting}",
                )
            if found.names.count(name) > 1:
                raise InputError(
                    "a column stands twice", file=str(path), field=name, remedy="rename one of the two"
                )
        kind = found.field(self.id_column).type
        if not _are_strings(kind):
            raise InputError(
                f"a column of ids has type {kind} where strings are needed",
                file=str(path),
                field=self.id_column,
                remedy="name another column, or write the ids as the documents have them",
            )
        return found.field(self.value_column).type


class _Index(NamedTuple):
    """Rows of all files, counted over them, in order of their ids' hashes.

    Attributes:
        hashes_R: The hashes, ascending, on disk.
        rows_R: The row of each, on disk.
        edges: The first row of each file, and the number of all.
    """

    hashes_R: NDArray[np.uint64]
    rows_R: NDArray[np.int64]
    edges: NDArray[np.int64]

    def of(self, pairs_N2: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Every row whose id has the hash of a document's, ascending, and that document."""
        first_N, last_N = (np.searchsorted(self.hashes_R, pairs_N2[:, 0], side) for side in ("left", "right"))
        number_N = last_N - first_N
        documents_n = np.repeat(pairs_N2[:, 1].astype(np.int64), number_N)
        within_n = np.arange(len(documents_n)) - np.repeat(np.cumsum(number_N) - number_N, number_N)
        rows_n = self.rows_R[np.repeat(first_N, number_N) + within_n]
        order_n = np.argsort(rows_n, kind="stable")
        return rows_n[order_n], documents_n[order_n]


class ImportedVectors(ImportedFiles):
    """Vectors, one per document.

    Args:
        location: The file or folder.
        id_column: Column of document ids.
        vector_column: Column of vectors.

    Raises:
        InputError: as ``ImportedFiles``, or the column is no list of floating-point numbers, or its
            first vector is not D wide.
    """

    settings = ("`embed.imported_file`", "`embed.imported_id_column`", "`embed.imported_vector_column`")

    def __init__(self, location: str, id_column: str, vector_column: str) -> None:
        super().__init__(location, id_column, vector_column, what="vectors")
        for path, kind in zip(self.paths, self.types, strict=True):
            is_list = (
                pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
            )
            if not (is_list and pa.types.is_floating(kind.value_type)):
                raise InputError(
                    f"a column has type {kind} where a list of floating-point numbers is needed",
                    file=str(path),
                    field=vector_column,
                )
        self._check_width()

    def _check_width(self) -> None:
        """Refuse a first vector of another width; the others' are checked as they are read."""
        first = next(_batches(self.paths[0], [self.value_column], rows=1), None)
        width = None if first is None else pc.list_value_length(first.column(0))[0].as_py()
        if width not in (None, EMBEDDING_DIM):
            raise InputError(
                f"vectors must be {EMBEDDING_DIM} wide",
                file=str(self.paths[0]),
                row=0,
                field=self.value_column,
                value=width,
                remedy="embed with a base-size model",
            )

    def gather(self, ids_N: Sequence[str] | pa.ChunkedArray, target: Path) -> tuple[NDArray[np.float16], int]:
        """The vectors of these documents, in their order, in a memory-mapped file; and how many had to be made unit.

        Only row groups that hold one of the ids are read beyond their ids.

        Args:
            ids_N: Document ids, each once.
            target: The file to fill.

        Raises:
            InputError: an id is missing or stands twice, a vector is not finite, zero, or not D wide, or a file is another
                than it was when it was first seen.
            StorageError: the disk has no room for the vectors.
        """
        ids = (
            ids_N if isinstance(ids_N, pa.ChunkedArray) else pa.chunked_array([pa.array(ids_N, pa.string())])
        )
        files_n, rows_n, documents_n = self._found(ids)
        vectors_ND = new_map(target, np.float16, (len(ids), EMBEDDING_DIM))
        num_normalised = 0
        for file in np.unique(files_n):
            own_n = files_n == file
            num_normalised += self._take(self.paths[file], rows_n[own_n], documents_n[own_n], vectors_ND)
            self.refuse_changed(self.paths[file])
        return vectors_ND, num_normalised

    @functools.cached_property
    def _index(self) -> "_Index":
        """Where each id stands, by its hash; made when it is first asked for, on disk, and removed with this object.

        Raises:
            InputError: a file is broken, or an id is null or not UTF-8.
        """
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            rows_F = np.zeros(len(self.paths), np.int64)
            unsorted = folder / "unsorted"
            with unsorted.open("wb") as stream:
                for file, first, batch in self.batches([self.id_column]):
                    names = self.strings(batch.column(0), self.paths[file], first)
                    for pairs_n2 in pairs_of([names], int(rows_F.sum())):
                        stream.write(pairs_n2.tobytes())
                    rows_F[file] += batch.num_rows
            hashes_R = new_map(folder / "hashes", np.uint64, (int(rows_F.sum()),))
            rows_R = new_map(folder / "rows", np.int64, hashes_R.shape)
            done = 0
            for pairs_n2 in sorted_pairs(unsorted):
                place = slice(done, done := done + len(pairs_n2))
                hashes_R[place], rows_R[place] = pairs_n2.T
            unsorted.unlink()
            weakref.finalize(self, stack.pop_all().close)
        return _Index(hashes_R, rows_R, np.concatenate([[0], np.cumsum(rows_F)]))

    def _found(self, ids: pa.ChunkedArray) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """File, row and document, by file and row, of every document.

        Raises:
            InputError: an id is missing or stands twice.
        """
        (pairs_N2,) = pairs_of([ids.combine_chunks()], 0)
        rows_n, documents_n = self._index.of(pairs_N2)
        files_n = np.searchsorted(self._index.edges, rows_n, "right") - 1
        rows_n -= self._index.edges[files_n]
        same_n = np.zeros(len(rows_n), np.bool_)
        for file in np.unique(files_n):
            own_n = files_n == file
            same_n[own_n] = self._are(self.paths[file], rows_n[own_n], ids.take(pa.array(documents_n[own_n])))
        files_n, rows_n, documents_n = files_n[same_n], rows_n[same_n], documents_n[same_n]
        found, first_n = np.unique(documents_n, return_index=True)
        if len(found) < len(documents_n):
            again = int(np.delete(np.arange(len(documents_n)), first_n)[0])
            raise self.repeated(files_n[again], int(rows_n[again]), ids[documents_n[again]].as_py())
        if missing := len(ids) - len(found):
            first = int(np.setdiff1d(np.arange(len(ids)), found)[0])
            raise InputError(
                f"{missing} of {len(ids)} documents have no vector, the first {ids[first].as_py()!r}",
                file=str(self.paths[0]),
                field=self.id_column,
                remedy="add their rows, or let the embed stage compute them",
            )
        return files_n, rows_n, documents_n

    def _are(self, path: Path, rows_n: NDArray[np.int64], ids: pa.ChunkedArray) -> NDArray[np.bool_]:
        """Whether rows of one file, ascending, have these ids."""
        same: list[pa.Array] = []
        for first, taken, column in self._groups(path, self.id_column, rows_n):
            names = self.strings(column.combine_chunks(), path, first)
            wanted = ids.slice(taken.start, taken.stop - taken.start).combine_chunks()
            same.append(pc.equal(names.take(pa.array(rows_n[taken] - first)), wanted.cast(pa.string())))
        found: NDArray[np.bool_] = pa.chunked_array(same, pa.bool_()).to_numpy()
        return found

    def _groups(
        self, path: Path, column: str, rows_n: NDArray[np.int64]
    ) -> Iterator[tuple[int, slice, pa.ChunkedArray]]:
        """A column of each row group that holds one of some ascending rows: its first row, which of them, and its values."""
        first = 0
        with pq.ParquetFile(path) as opened:
            for group in range(opened.num_row_groups):
                last = first + opened.metadata.row_group(group).num_rows
                start, stop = np.searchsorted(rows_n, [first, last]).tolist()
                if start < stop:
                    yield first, slice(start, stop), opened.read_row_group(group, columns=[column]).column(0)
                first = last

    def _take(
        self,
        path: Path,
        rows_n: NDArray[np.int64],
        documents_n: NDArray[np.int64],
        vectors_ND: NDArray[np.float16],
    ) -> int:
        """Fill in what one file holds, its rows ascending; how many of its vectors were not of unit norm."""
        num_normalised = 0
        for first, taken, column in self._groups(path, self.value_column, rows_n):
            rows = rows_n[taken]
            chosen = column.take(pa.array(rows - first)).combine_chunks()
            vectors_ND[documents_n[taken]], off = self._unit(chosen, path, rows)
            num_normalised += off
        return num_normalised

    def _unit(self, column: Any, path: Path, rows_n: NDArray[np.int64]) -> tuple[NDArray[np.float16], int]:
        """Vectors as they are stored; those that would not be of unit norm are made so, and counted."""

        def refuse(wrong_n: NDArray[np.bool_], problem: str, value: object = None) -> None:
            if wrong_n.any():
                row = int(rows_n[np.argmax(wrong_n)])
                raise InputError(problem, file=str(path), row=row, field=self.value_column, value=value)

        widths_n = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        off_n = widths_n != EMBEDDING_DIM
        refuse(off_n, f"vectors must be {EMBEDDING_DIM} wide", widths_n[np.argmax(off_n)])
        raw_nD = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, EMBEDDING_DIM)
        norms_n = np.linalg.norm(raw_nD.astype(np.float64), axis=1)
        refuse(~(np.isfinite(norms_n) & (norms_n > 0)), "a vector is zero or not finite")
        with np.errstate(over="ignore", under="ignore"):
            stored_nD: NDArray[np.float16] = raw_nD.astype(np.float16)
        off_n = ~are_unit(np.linalg.norm(stored_nD.astype(np.float32), axis=1))
        stored_nD[off_n] = (raw_nD[off_n] / norms_n[off_n, None]).astype(np.float16)
        return stored_nD, int(off_n.sum())


def _state_of(path: Path) -> tuple[int, int, int] | None:
    """What tells a changed file; ``None``: it is gone."""
    with contextlib.suppress(FileNotFoundError):
        found = path.stat()
        return found.st_size, found.st_mtime_ns, found.st_ino
    return None


def _batches(path: Path, columns: list[str], rows: int = 65_536) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(path) as opened:
            yield from opened.iter_batches(rows, columns=columns)
    except (pa.ArrowException, OSError) as error:
        if "UTF8" in str(error):  # of a dictionary, which Arrow decodes as a whole
            raise InputError(
                "an id is not valid UTF-8", file=str(path), field=columns[0], remedy=UTF8
            ) from error
        raise _broken(path, error) from error


def _not_utf8(names: pa.Array) -> Iterator[tuple[int, bytes]]:
    """The rows whose bytes are not UTF-8."""
    for row, name in enumerate(names.cast(pa.large_binary()).to_pylist()):
        try:
            name.decode()
        except UnicodeDecodeError:
            yield row, name


def _are_strings(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        return _are_strings(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _broken(path: Path, error: Exception) -> InputError:
    return InputError(f"not a whole Parquet file: {error}", file=str(path), remedy="write the file again")
