"""Columns of lists, as Parquet holds embeddings, as arrays. Knows no norm and no metric.

Shape suffixes: N documents, n of a chunk, D embedding dimensions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datamask_pipeline.errors import InputError

DROP = "drop the document or embed it again"


def array_of(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """The numbers, shape (N, D): those of the column itself, read-only, where they lie in one chunk.

    Raises:
        InputError: not lists of numbers, or a list that is null, has a null, or another length than the first, by its row.
    """
    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not is_list or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise InputError("embeddings must be lists of numbers", field="embeddings", value=str(kind))
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    found: list[NDArray[Any]] = []
    row = 0
    for chunk in chunks:
        if len(chunk):
            found.append(_rows_of(chunk, row, found[0].shape[1] if found else None))
            row += len(chunk)
    if not found:
        return np.empty((0, 0), np.float32)
    return found[0] if len(found) == 1 else np.concatenate(found)


def _rows_of(chunk: pa.Array, first_row: int, dim: int | None) -> NDArray[Any]:
    lengths_n = chunk.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
    dim = int(lengths_n[0]) if dim is None else dim
    wrong_n = np.flatnonzero((lengths_n != dim) | (lengths_n < 0))
    if len(wrong_n):
        row, length = int(wrong_n[0]), int(lengths_n[wrong_n[0]])
        problem = (
            "an embedding is null"
            if length < 0
            else f"an embedding has {length} dimensions, the first one {dim}"
        )
        raise InputError(problem, row=first_row + row, field="embeddings", remedy=DROP)
    values = chunk.flatten()
    if values.null_count:
        row = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))) // dim
        raise InputError(
            "a number of an embedding is null", row=first_row + row, field="embeddings", remedy=DROP
        )
    array_nD: NDArray[Any] = values.to_numpy().reshape(len(chunk), dim)
    return array_nD
