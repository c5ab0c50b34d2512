"""Vectors computed elsewhere: taken by id, made unit, and refused by name when they do not fit."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask_pipeline.embedding.imported import ImportedVectors
from datamask_pipeline.errors import InputError
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.inputs import checked_rows
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.storage import row_index
from datamask_pipeline.vectors import are_unit


def vectors(number: int, width: int = 768, seed: int = 0) -> np.ndarray:
    raw = np.random.default_rng(seed).standard_normal((number, width)).astype(np.float32)
    return raw / np.linalg.norm(raw, axis=1, keepdims=True)


def write(path: Path, ids: list[str], matrix: np.ndarray, kind: pa.DataType | None = None) -> Path:
    flat = pa.array(matrix.astype(np.float32).reshape(-1)).cast((kind or pa.list_(pa.float16())).value_type)
    column = pa.FixedSizeListArray.from_arrays(flat, matrix.shape[1])
    if kind is not None and not pa.types.is_fixed_size_list(kind):
        column = column.cast(kind)
    pq.write_table(pa.table({"chunk_id": ids, "feature_arr": column}), path, row_group_size=3)
    return path


@pytest.mark.parametrize(
    "kind", [None, pa.list_(pa.float64()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 768)]
)
def test_rows_are_taken_by_id_in_the_order_asked(tmp_path: Path, kind: pa.DataType | None) -> None:
    matrix = vectors(10)
    path = write(tmp_path / "v.parquet", [f"d{i}" for i in range(10)], matrix, kind)
    imported = ImportedVectors(str(path), "chunk_id", "feature_arr")
    found, num_normalised = imported.gather(["d7", "d0", "d9"], tmp_path / "out")
    np.testing.assert_allclose(found.astype(np.float32), matrix[[7, 0, 9]], atol=1e-3)
    assert num_normalised == 0


def test_a_file_that_is_written_anew_while_it_is_read_is_refused(tmp_path: Path) -> None:
    """Its digest, which the record keeps, is of the file before."""
    names = [f"d{number}" for number in range(10)]
    path = write(tmp_path / "v.parquet", names, vectors(10))
    imported = ImportedVectors(str(path), "chunk_id", "feature_arr")
    before = imported.digest
    imported.gather(names[:5], tmp_path / "out")
    write(path, names, vectors(10, seed=1))
    assert imported.digest != before
    with pytest.raises(InputError, match="the file changed since the run began"):
        imported.gather(names[5:], tmp_path / "out")
    imported = ImportedVectors(str(path), "chunk_id", "feature_arr")
    write(path, names, vectors(10, seed=2))
    with pytest.raises(InputError, match="the file changed since the run began"):
        list(imported.batches(["chunk_id"]))


def test_a_folder_of_files_is_one_table(tmp_path: Path) -> None:
    matrix = vectors(4)
    write(tmp_path / "a.parquet", ["x", "y"], matrix[:2])
    write(tmp_path / "b.parquet", ["z", "w"], matrix[2:])
    found, _ = ImportedVectors(str(tmp_path), "chunk_id", "feature_arr").gather(["w", "x"], tmp_path / "out")
    np.testing.assert_allclose(found.astype(np.float32), matrix[[3, 0]], atol=1e-3)


def test_vectors_of_another_norm_are_made_unit_and_counted(tmp_path: Path) -> None:
    matrix = vectors(3)
    path = write(tmp_path / "v.parquet", ["a", "b", "c"], matrix * np.array([[1.0], [4.0], [0.5]]))
    imported = ImportedVectors(str(path), "chunk_id", "feature_arr")
    found, num_normalised = imported.gather(["a", "b", "c"], tmp_path / "out")
    np.testing.assert_allclose(found.astype(np.float32), matrix, atol=1e-3)
    assert num_normalised == 2


def test_one_tolerance_says_what_is_of_unit_norm(tmp_path: Path) -> None:
    """What import keeps as it is, the engine keeps and Dagster's check passes; on both sides of the border."""
    norms = np.concatenate([[1.0015, 0.9985], np.linspace(0.997, 1.003, 120), [1e-30, 1e30]])
    matrix = vectors(len(norms)).astype(np.float64) * norms[:, None]
    flat = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), 768)
    ids = [f"d{number}" for number in range(len(norms))]
    pq.write_table(pa.table({"id": ids, "v": flat}), tmp_path / "v.parquet")
    found, num_normalised = ImportedVectors(str(tmp_path / "v.parquet"), "id", "v").gather(
        ids, tmp_path / "out"
    )
    assert are_unit(np.linalg.norm(found.astype(np.float32), axis=1)).all()
    assert 60 < num_normalised < 100
    settings = SelectionConfig(ratio=0.5)
    with Workers(1) as workers:
        assert checked_rows(np.array(found), settings, workers).num_normalised == 0
        raw = checked_rows(matrix[:2].astype(np.float16), settings, workers)
    assert raw.num_normalised == 2


def test_an_id_that_is_not_utf8_is_named_with_its_place(tmp_path: Path) -> None:
    ids = pa.array([b"a", b"b", b"c", b"\xff"], pa.binary()).view(pa.string())
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors(4).ravel()), 768)
    pq.write_table(pa.table({"id": ids, "v": column}), tmp_path / "v.parquet", row_group_size=2)
    imported = ImportedVectors(str(tmp_path / "v.parquet"), "id", "v")
    with pytest.raises(
        InputError, match=r"not valid UTF-8 \(file .*v\.parquet, row 3, field id, value b'\\xff'"
    ):
        imported.gather(["a"], tmp_path / "out")


def test_a_vector_that_cannot_be_used_is_named_with_its_row(tmp_path: Path) -> None:
    matrix = vectors(5)
    matrix[3] = np.nan
    path = write(tmp_path / "v.parquet", list("abcde"), matrix)
    imported = ImportedVectors(str(path), "chunk_id", "feature_arr")
    found, _ = imported.gather(["e", "a"], tmp_path / "out")
    np.testing.assert_allclose(found.astype(np.float32), matrix[[4, 0]], atol=1e-3)
    with pytest.raises(InputError, match=r"zero or not finite \(file .*, row 3, field feature_arr"):
        imported.gather(["a", "d"], tmp_path / "out")


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "v.parquet", ["a", "b", "a"], vectors(3))
    imported = ImportedVectors(str(path), "chunk_id", "feature_arr")
    with pytest.raises(InputError, match="1 of 2 documents have no vector, the first 'q'"):
        imported.gather(["b", "q"], tmp_path / "out")
    with pytest.raises(InputError, match=r"stands twice.*value 'a'"):
        imported.gather(["a", "b"], tmp_path / "out")
    with pytest.raises(
        InputError, match=r"there are: chunk_id, feature_arr .* in `embed\.imported_id_column`"
    ):
        ImportedVectors(str(path), "id", "feature_arr")
    with pytest.raises(InputError, match="list of floating-point"):
        ImportedVectors(str(path), "chunk_id", "chunk_id")
    numbered = tmp_path / "numbered.parquet"
    pq.write_table(pa.table({"chunk_id": [1], "feature_arr": [[1.0] * 768]}), numbered)
    with pytest.raises(InputError, match=r"strings are needed .*field chunk_id"):
        ImportedVectors(str(numbered), "chunk_id", "feature_arr")
    with pytest.raises(InputError, match=r"no Parquet file of vectors .*correct `embed\.imported_file`"):
        ImportedVectors(str(tmp_path / "none.parquet"), "id", "v")
    narrow = write(tmp_path / "n.parquet", ["a"], vectors(1, 384))
    with pytest.raises(InputError, match="must be 768 wide"):
        ImportedVectors(str(narrow), "chunk_id", "feature_arr").gather(["a"], tmp_path / "out")
    zero = write(tmp_path / "z.parquet", ["a"], np.zeros((1, 768), np.float32))
    with pytest.raises(InputError, match="zero or not finite"):
        ImportedVectors(str(zero), "chunk_id", "feature_arr").gather(["a"], tmp_path / "out")


def test_an_id_in_two_files_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", ["x"], vectors(1))
    write(tmp_path / "b.parquet", ["x"], vectors(1))
    with pytest.raises(InputError, match="stands twice"):
        ImportedVectors(str(tmp_path), "chunk_id", "feature_arr").gather(["x"], tmp_path / "out")


def test_ids_of_equal_hashes_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_index, "_hash", lambda name: len(name))
    matrix = vectors(6)
    write(tmp_path / "a.parquet", ["b", "aa", "a", "bb"], matrix[:4])
    write(tmp_path / "b.parquet", ["c", "cc"], matrix[4:])
    imported = ImportedVectors(str(tmp_path), "chunk_id", "feature_arr")
    found, _ = imported.gather(["cc", "a", "b", "aa"], tmp_path / "out")
    np.testing.assert_allclose(found.astype(np.float32), matrix[[5, 2, 0, 1]], atol=1e-3)
    with pytest.raises(InputError, match="1 of 3 documents have no vector, the first 'd'"):
        imported.gather(["c", "d", "bb"], tmp_path / "out")


def test_of_many_files_every_shard_finds_its_rows(tmp_path: Path) -> None:
    """Rows are found by their numbers over all files; the first row that repeats an id is the one that is named."""
    matrix = vectors(40)
    for file in range(4):
        write(
            tmp_path / f"{file}.parquet",
            [f"d{file * 10 + row}" for row in range(10)],
            matrix[file * 10 :][:10],
        )
    imported = ImportedVectors(str(tmp_path), "chunk_id", "feature_arr")
    for asked in np.random.default_rng(1).permutation(40).reshape(4, 10):
        found, _ = imported.gather([f"d{number}" for number in asked], tmp_path / "out")
        np.testing.assert_allclose(found.astype(np.float32), matrix[asked], atol=1e-3)
    write(tmp_path / "5.parquet", ["d31", "d2", "d2"], matrix[:3])
    imported = ImportedVectors(str(tmp_path), "chunk_id", "feature_arr")
    with pytest.raises(InputError, match=r"5\.parquet, row 1, field chunk_id, value 'd2'"):
        imported.gather(["d3", "d2"], tmp_path / "out")
