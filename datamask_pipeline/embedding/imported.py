"""Vectors that were computed elsewhere, read from Parquet by document id. Knows no model.

Shape suffixes: R rows of the imported file's row group, N documents of a shard, D embedding width.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from datamask_pipeline.errors import InputError
from datamask_pipeline.schema import EMBEDDING_DIM

#: A norm this close to 1 is kept as it is: float16 cannot do better.
UNIT_TOLERANCE = 2e-3


class ImportedVectors:
    """A Parquet file, or a folder of them, with one row per document.

    Args:
        location: The file or folder.
        id_column: Column of document ids.
        vector_column: Column of vectors.

    Raises:
        InputError: nothing is there, a column is missing or no list of floating-point numbers.
    """

    def __init__(self, location: str, id_column: str, vector_column: str) -> None:
        root = Path(location)
        self.paths = sorted(root.rglob("*.parquet")) if root.is_dir() else [root]
        self._id, self._vector = id_column, vector_column
        if not self.paths or not self.paths[0].exists():
            raise InputError("no Parquet file of vectors", file=location, remedy="correct the path")
        for path in self.paths:
            self._check(path)

    @property
    def digest(self) -> str:
        """SHA-256 over the files' SHA-256."""
        hashed = hashlib.sha256()
        for path in self.paths:
            with path.open("rb") as stream:
                hashed.update(hashlib.file_digest(stream, "sha256").digest())
        return hashed.hexdigest()

    def gather(self, ids_N: Sequence[str], target: Path) -> tuple[NDArray[np.float16], int]:
        """The vectors of these documents, in their order, in a memory-mapped file; and how many had to be made unit.

        Only row groups that hold one of the ids are read beyond their ids.

        Args:
            ids_N: Document ids, each once.
            target: The file to fill.

        Raises:
            InputError: an id is missing or stands twice, or a vector is not finite, zero, or not D wide.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        vectors_ND = np.memmap(target, dtype=np.float16, mode="w+", shape=(len(ids_N), EMBEDDING_DIM))
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
                field=self._id,
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
        names = opened.read_row_group(group, columns=[self._id]).column(0).to_pylist()
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
                field=self._id,
                value=names[sources[repeated]],
                remedy="keep one row per document",
            )
        column = opened.read_row_group(group, columns=[self._vector]).column(0).combine_chunks()
        vectors_ND[targets], num_normalised = self._unit(column.take(pa.array(sources)), path)
        found_N[targets] = True
        return num_normalised

    def _unit(self, column: Any, path: Path) -> tuple[NDArray[np.float16], int]:
        """Rows as unit vectors; those already of unit norm are not touched, the others counted."""
        lengths = {int(n) for n in np.unique(pc.list_value_length(column).fill_null(0).to_numpy())}
        if lengths != {EMBEDDING_DIM}:
            raise InputError(
                f"vectors must be {EMBEDDING_DIM} wide", file=str(path), field=self._vector, value=lengths
            )
        raw_RD = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, EMBEDDING_DIM)
        norms_R = np.linalg.norm(raw_RD.astype(np.float64), axis=1)
        if not (np.isfinite(norms_R) & (norms_R > 0)).all():
            raise InputError("a vector is zero or not finite", file=str(path), field=self._vector)
        off_R = np.abs(norms_R - 1.0) > UNIT_TOLERANCE
        divisors_R1 = np.where(off_R, norms_R, 1.0)[:, None]
        unit_RD: NDArray[np.float16] = (raw_RD / divisors_R1).astype(np.float16)
        return unit_RD, int(off_R.sum())

    def _check(self, path: Path) -> None:
        try:
            found = pq.read_schema(path)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"not a whole Parquet file: {error}", file=str(path)) from error
        for name in (self._id, self._vector):
            if name not in found.names:
                raise InputError(
                    f"a column is missing; there are: {', '.join(found.names)}",
                    file=str(path),
                    field=name,
                    remedy="name the right column in the configuration",
                )
        kind = found.field(self._vector).type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        if not (is_list and pa.types.is_floating(kind.value_type)):
            raise InputError(
                f"a column has type {kind} where a list of floating-point numbers is needed",
                file=str(path),
                field=self._vector,
            )
