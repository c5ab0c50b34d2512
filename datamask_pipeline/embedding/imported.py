"""What was computed elsewhere, joined to the documents by their ids: any column, and vectors. Knows no model.

Shape suffixes: N documents of a shard, n of them that one row group holds, D embedding width.
"""

import contextlib
import functools
import hashlib
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from datamask_pipeline import duck
from datamask_pipeline.errors import InputError
from datamask_pipeline.schema import EMBEDDING_DIM
from datamask_pipeline.storage import new_map
from datamask_pipeline.vectors import are_unit

if TYPE_CHECKING:
    import duckdb

UTF8 = "write the ids as the documents have them"

Numbers = Callable[[pa.Array], NDArray[np.float64]]


class ImportedFiles:
    """A Parquet file, or a folder of them, with one row per document.

    Args:
        location: The file or folder.
        id_column: Column of document ids.
        value_column: Column of what was computed.
        what: What a message calls that, e.g. ``vectors``.
        numbers: Makes one number of each value, for the database; without it the values stay in their files.

    Attributes:
        paths: The files, sorted.
        types: Type of the column of values in each of them.

    Raises:
        InputError: nothing is there, a file is broken, a column is missing, or the ids are no strings.
    """

    def __init__(
        self, location: str, id_column: str, value_column: str, *, what: str, numbers: Numbers | None = None
    ) -> None:
        root = Path(location)
        self.paths = sorted(root.rglob("*.parquet")) if root.is_dir() else [root]
        self.id_column, self.value_column, self._numbers = id_column, value_column, numbers
        if not self.paths or not self.paths[0].exists():
            raise InputError(f"no Parquet file of {what}", file=location, remedy="correct the path")
        self.types = [self._checked(path) for path in self.paths]

    @property
    def digest(self) -> str:
        """SHA-256 over the files' SHA-256."""
        hashed = hashlib.sha256()
        for path in self.paths:
            with path.open("rb") as stream:
                hashed.update(hashlib.file_digest(stream, "sha256").digest())
        return hashed.hexdigest()

    @functools.cached_property
    def database(self) -> "duckdb.DuckDBPyConnection":
        """A database with a table ``imported`` of every row: file (its place in ``paths``), row, id and value.

        It is filled when it is first asked for, spills to disk, and is closed with this object.

        Raises:
            InputError: a file is broken, or an id is null or not UTF-8.
        """
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            connection = stack.enter_context(duck.database(Path(folder), memory_limit=duck.STAGE_MEMORY))
            self._fill(connection)
            weakref.finalize(self, stack.pop_all().close)
        return connection

    def _fill(self, connection: "duckdb.DuckDBPyConnection") -> None:
        connection.execute("CREATE TABLE imported (file INTEGER, row BIGINT, id VARCHAR, value DOUBLE)")
        columns = [self.id_column, *([self.value_column] if self._numbers else [])]
        for file, path in enumerate(self.paths):
            first = 0
            for batch in _batches(path, columns):
                size = batch.num_rows
                values = (
                    self._numbers(batch.column(self.value_column)) if self._numbers else np.full(size, np.nan)
                )
                taken = {
                    "file": np.full(size, file),
                    "row": np.arange(first, first + size),
                    "id": self._ids(batch.column(self.id_column), path, first),
                    "value": values,
                }
                connection.register("taken", pa.table(taken))
                connection.execute("INSERT INTO imported SELECT * FROM taken")
                first += size

    def refuse_repeated(self, rows: str = "imported") -> None:
        """Refuse an id that stands twice in a table of the database.

        Raises:
            InputError: naming the first row that repeats an id.
        """
        found = self.database.execute(
            f"""
            SELECT file, row, id FROM {rows} JOIN (SELECT id FROM {rows} GROUP BY id HAVING count(*) > 1) USING (id)
            QUALIFY row_number() OVER (PARTITION BY id ORDER BY file, row) > 1 ORDER BY file, row LIMIT 1
            """
        ).fetchone()
        if found is not None:
            file, row, name = found
            raise InputError(
                "an id stands twice",
                file=str(self.paths[file]),
                row=row,
                field=self.id_column,
                value=name,
                remedy="keep one row per document",
            )

    def _ids(self, column: pa.Array, path: Path, first: int) -> pa.Array:
        """A batch's ids as strings."""
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

    def _checked(self, path: Path) -> pa.DataType:
        """Type of the file's values."""
        try:
            found = pq.read_schema(path)
        except (pa.ArrowException, OSError) as error:
            raise _broken(path, error) from error
        for name in (self.id_column, self.value_column):
            if name not in found.names:
                raise InputError(
                    f"a column is missing; there are: {', '.join(found.names)}",
                    file=str(path),
                    field=name,
                    remedy="name the right column in the configuration",
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
            InputError: an id is missing or stands twice, or a vector is not finite, zero, or not D wide.
            StorageError: the disk has no room for the vectors.
        """
        connection = self.database
        connection.register("wanted", pa.table({"document": np.arange(len(ids_N)), "id": ids_N}))
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE found AS SELECT file, row, document, id FROM imported JOIN wanted USING (id)"
        )
        self.refuse_repeated("found")
        (missing, first) = connection.execute(
            "SELECT count(*), arg_min(id, document) FROM wanted WHERE id NOT IN (SELECT id FROM found)"
        ).fetchall()[0]
        if missing:
            raise InputError(
                f"{missing} of {len(ids_N)} documents have no vector, the first {first!r}",
                file=str(self.paths[0]),
                field=self.id_column,
                remedy="add their rows, or let the embed stage compute them",
            )
        places = connection.execute("SELECT file, row, document FROM found ORDER BY file, row").fetchnumpy()
        vectors_ND = new_map(target, np.float16, (len(ids_N), EMBEDDING_DIM))
        num_normalised = 0
        for file in np.unique(places["file"]):
            own_n = places["file"] == file
            rows_n, documents_n = places["row"][own_n], places["document"][own_n]
            num_normalised += self._take(self.paths[file], rows_n, documents_n, vectors_ND)
        return vectors_ND, num_normalised

    def _take(
        self,
        path: Path,
        rows_n: NDArray[np.int64],
        documents_n: NDArray[np.int64],
        vectors_ND: NDArray[np.float16],
    ) -> int:
        """Fill in what one file holds, its rows ascending; how many of its vectors were not of unit norm."""
        num_normalised = first = 0
        with pq.ParquetFile(path) as opened:
            for group in range(opened.num_row_groups):
                last = first + opened.metadata.row_group(group).num_rows
                taken = slice(*np.searchsorted(rows_n, [first, last]))
                if len(rows := rows_n[taken]):
                    column = opened.read_row_group(group, columns=[self.value_column]).column(0)
                    chosen = column.take(pa.array(rows - first)).combine_chunks()
                    vectors_ND[documents_n[taken]], off = self._unit(chosen, path, rows)
                    num_normalised += off
                first = last
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
