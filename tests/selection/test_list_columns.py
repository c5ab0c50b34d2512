"""Embeddings as Parquet gives them: columns of lists are read where they lie, or refused by row."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from datamask_pipeline import frontier, select_documents
from datamask_pipeline.errors import InputError
from datamask_pipeline.selection.inputs import stored_vectors


def column(rows: np.ndarray, kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(list(rows), kind or pa.list_(pa.from_numpy_dtype(rows.dtype)))


@pytest.mark.slow
def test_columns_of_lists_are_the_array(clustered, tmp_path) -> None:
    rows, quality = clustered
    expected = select_documents(rows, quality, target=rows[:5])
    size = rows.shape[1]
    pq.write_table(pa.table({"v": column(rows)}), tmp_path / "in.parquet", row_group_size=90)
    columns = {
        "list": column(rows),
        "large": column(rows, pa.large_list(pa.float32())),
        "fixed": column(rows, pa.list_(pa.float32(), size)),
        "sliced": column(np.concatenate([rows[:7], rows]))[7:],
        "sliced fixed": column(np.concatenate([rows[:7], rows]), pa.list_(pa.float32(), size))[7:],
        "chunked": pa.chunked_array([column(rows[:150]), column(rows[:0]), column(rows[150:])]),
        "read": pq.read_table(tmp_path / "in.parquet")["v"],
        "double": column(rows.astype(np.float64)),
    }
    for name, given in columns.items():
        found = select_documents(given, quality, target=given[:5])
        assert np.array_equal(found.mask, expected.mask), name
        assert found.record["embeddings_digest"] == expected.record["embeddings_digest"], name
    assert np.array_equal(frontier(columns["chunked"], quality, lambs=[0.5]).results[0].mask, frontier(
        rows, quality, lambs=[0.5]).results[0].mask)  # fmt: skip
    half = rows.astype(np.float16)
    assert torch.equal(stored_vectors(column(half)), torch.from_numpy(half))
    assert torch.equal(
        stored_vectors(column((rows * 99).astype(np.int8))), torch.from_numpy((rows * 99).astype(np.int8))
    )


@pytest.mark.parametrize("fixed", [False, True])
def test_one_chunk_is_not_copied(clustered, fixed: bool) -> None:
    given = column(clustered[0], pa.list_(pa.float32(), clustered[0].shape[1]) if fixed else None)
    for one in (given, pa.chunked_array([given])):
        assert stored_vectors(one).data_ptr() == given.values.buffers()[1].address


def listed(rows: np.ndarray, row: int, value: object) -> pa.ChunkedArray:
    values = rows.tolist()
    values[row] = value
    return pa.chunked_array([values[:150], values[150:]], pa.list_(pa.float32()))


@pytest.mark.parametrize("row", [0, 3, 170])
def test_ragged_and_null_ones_are_refused_by_row(row: int, clustered) -> None:
    rows, quality = clustered
    size = rows.shape[1]
    for value, said in (
        (None, "an embedding is null"),
        ([1.0] * (size - 1), "dimensions, the first one"),
        ([1.0] * (size - 1) + [None], "a number of an embedding is null"),
    ):
        told = 1 if row == 0 and value is not None and len(value) < size else row
        with pytest.raises(InputError, match=rf"{said}.*row {told}, field embeddings"):
            select_documents(listed(rows, row, value), quality)
    null = pa.array([*rows[:row].tolist(), None, *rows[row + 1 :].tolist()], pa.list_(pa.float32(), size))
    with pytest.raises(InputError, match=f"an embedding is null.*row {row}, field embeddings"):
        select_documents(null, quality)


def test_other_columns_are_refused_with_a_remedy(clustered) -> None:
    rows, quality = clustered
    for given in (pa.array(rows[:, 0]), pa.array([["a"]] * 400)):
        with pytest.raises(InputError, match=r"lists of numbers.*field embeddings, value"):
            select_documents(given, quality)
    objects = np.empty(400, object)
    objects[:] = list(rows)
    for given in (objects, pd.Series(list(rows))):
        with pytest.raises(InputError, match=r"real numbers.*field embeddings.*np\.stack"):
            select_documents(given, quality)
        assert select_documents(np.stack(given), quality).mask.sum() == 40
