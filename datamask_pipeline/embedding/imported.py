"""What was computed elsewhere, read from Parquet by document id: any column, and vectors. Knows no model.

Shape suffixes: R rows of the imported file's row group, N documents of a shard, D embedding width.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from datamask_pipeline.errors import InputError
from datamask_pipeline.schema import EMBEDDING_DIM
from datamask_pipeline.storage import new_map

#: A norm this close to 1 is kept as it is: float16 cannot do better.
UNIT_TOLERANCE = 2e-3


class ImportedFiles:
    """A Parquet file, or a folder of them, with one row per document.

    Args:
        location: The file or folder.
        id_column: Column of document ids.
        value_column: Column of what was computed.
        what: What a message calls that, e.g. ``vectors``.

    Attributes:
        paths: The files, sorted.
        types: Type of the column of values in each of them.

    Raises:
        InputError: nothing is there, a file is broken, a column is missing, or the ids are no strings.
    """

    def __init__(self, location: str, id_column: str, value_column: str, *, what: str) -> None:
        root = Path(location)
        self.paths = sorted(root.rglob("*.parquet")) if root.is_dir() else [root]
        self.id_column, self.value_column = id_column, value_column
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

    def batches(self) -> Iterator[tuple[Path, int, pa.RecordBatch]]:
        """Ids and values of every row: the file, the number of its rows before the batch, and the batch.

        Raises:
            InputError: a file is broken.
        """
        for path in self.paths:
            first = 0
            try:
                with pq.ParquetFile(path) as opened:
                    for batch in opened.iter_batches(columns=[self.id_column, self.value_column]):
                        yield path, first, batch
                        first += batch.num_rows
            except (pa.ArrowException, OSError) as error:
                raise _broken(path, error) from error

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
        InputError: as ``ImportedFiles``, or the column is no list of floating-point numbers.
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

    def gather(self, ids_N: Sequence[str], target: Path) -> tuple[NDArray[np.float16], int]:
        """The vectors of these documents, in their order, in a memory-mapped file; and how many had to be made unit.

        Only row groups that hold one of the ids are read beyond their ids.

        Args:
            ids_N: Document ids, each once.
            target: The file to fill.

        Raises:
            InputError: an id is missing or stands twice, or a vector is not finite, zero, or not D wide.
            StorageError: the disk has no room for the vectors.
        """
        vectors_ND = new_map(target, np.float16, (len(ids_N), EMBEDDING_DIM))
        wanted = {name: row for row, name in enumerate(ids_N)}
        found_N = np.zeros(len(ids_N), dtype=bool)
        num_normalised = 0
        for path in self.paths:
            with pq.ParquetFile(path) as opened:
                for group in range(opened.num_row_groups):
                    num_normalised += self._take_group(opened, group, path, wanted, found_N, vectors_ND)
        if not found_N.all():
            missing = ids_N[int(np.flatnonzero(~found_N)[0])]
            raise InputError(
                f"{int((~found_N).sum())} of {len(ids_N)} documents have no vector, the first {missing!r}",
                file=str(self.paths[0]),
                field=self.id_column,
                remedy="add their rows, or let the embed stage compute them",
            )
        return vectors_ND, num_normalised

    def _take_group(
        self,
        opened: pq.ParquetFile,
        group: int,
        path: Path,
        wanted: dict[str, int],
        found_N: NDArray[np.bool_],
        vectors_ND: NDArray[np.float16],
    ) -> int:
        """Fill in what one row group holds; how many of its vectors were not of unit norm."""
        names = opened.read_row_group(group, columns=[self.id_column]).column(0).to_pylist()
        pairs = [(row, wanted[name]) for row, name in enumerate(names) if name in wanted]
        if not pairs:
            return 0
        sources, targets = (np.array(side) for side in zip(*pairs, strict=True))
        unique, first = np.unique(targets, return_index=True)
        if len(unique) < len(targets) or found_N[targets].any():
            repeated = next(i for i in range(len(targets)) if found_N[targets[i]] or i not in first)
            raise InputError(
                "an id stands twice",
                file=str(path),
                field=self.id_column,
                value=names[sources[repeated]],
                remedy="keep one row per document",
            )
        column = opened.read_row_group(group, columns=[self.value_column]).column(0).combine_chunks()
        vectors_ND[targets], num_normalised = self._unit(column.take(pa.array(sources)), path)
        found_N[targets] = True
        return num_normalised

    def _unit(self, column: Any, path: Path) -> tuple[NDArray[np.float16], int]:
        """Rows as unit vectors; those already of unit norm are not touched, the others counted."""
        lengths = {int(n) for n in np.unique(pc.list_value_length(column).fill_null(0).to_numpy())}
        if lengths != {EMBEDDING_DIM}:
            raise InputError(
                f"vectors must be {EMBEDDING_DIM} wide",
                file=str(path),
                field=self.value_column,
                value=lengths,
            )
        raw_RD = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, EMBEDDING_DIM)
        norms_R = np.linalg.norm(raw_RD.astype(np.float64), axis=1)
        if not (np.isfinite(norms_R) & (norms_R > 0)).all():
            raise InputError("a vector is zero or not finite", file=str(path), field=self.value_column)
        off_R = np.abs(norms_R - 1.0) > UNIT_TOLERANCE
        divisors_R1 = np.where(off_R, norms_R, 1.0)[:, None]
        unit_RD: NDArray[np.float16] = (raw_RD / divisors_R1).astype(np.float16)
        return unit_RD, int(off_R.sum())


def _are_strings(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        return _are_strings(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _broken(path: Path, error: Exception) -> InputError:
    return InputError(f"not a whole Parquet file: {error}", file=str(path), remedy="write the file again")
