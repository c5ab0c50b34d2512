"""Digests see every value and nothing else."""

import io
import itertools
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamask_pipeline.lineage import TableDigest, fingerprint, plain


def digest(*batches: pa.Table) -> str:
    result = TableDigest(batches[0].schema)
    for batch in batches:
        result.update(batch)
    return result.hexdigest()


def example() -> pa.Table:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8).astype(np.float16)), 2)
    return pa.table(
        {
            "text": pa.array(["x", None, "zß\x00", ""]),
            "score": pa.array([1.0, None, float("nan"), -0.0]),
            "tags": pa.array([["a", "b"], None, [], ["c"]]),
            "vector": vectors,
            "meta": pa.array([{"k": 1}, None, {"k": 2}, {"k": None}]),
            "when": pa.array([1, 2, 3, None], pa.timestamp("us")),
            "nowhere": pa.array([1, 2, 3, None], pa.timestamp("us", "Nowhere/Known")),
            "ever": pa.array([2**62, 2**61, 3, None], pa.timestamp("us", "UTC")),
            "kind": pa.array(["u", "v", "u", None]).dictionary_encode(),
            "flag": pa.array([True, None, False, False]),
            "map": pa.array(
                [[("k", 1), ("l", None)], None, [], [("k", 2)]], pa.map_(pa.string(), pa.int64())
            ),
            "maps": pa.array([[[("k", 1)]], None, [None], []], pa.list_(pa.map_(pa.string(), pa.int64()))),
            "view": pa.array([[1, None], None, [], [2]], pa.list_view(pa.int64())),
            "bytes": pa.array([b"\xff\xfe", None, b"ab", b"\0\0"], pa.binary(2)),
            "bytes_view": pa.array([b"\xff", None, b"", b"\0"], pa.binary_view()),
            "uuid": pa.array([b"\xff" * 16, None, b"0" * 16, b"\0" * 16], pa.uuid()),
            "money": pa.array([Decimal("1.50"), None, Decimal("-2.00"), Decimal(0)], pa.decimal128(5, 2)),
        }
    )


@settings(max_examples=30)
@given(cuts=st.sets(st.integers(1, 3)))
def test_batch_borders_do_not_matter(cuts: set[int]) -> None:
    table = example()
    edges = [0, *sorted(cuts), 4]
    pieces = [table.slice(a, b - a) for a, b in itertools.pairwise(edges)]
    assert digest(*pieces) == digest(table)


@pytest.mark.parametrize("column", example().column_names)
def test_every_column_is_seen(column: str) -> None:
    table = example()
    index = table.column_names.index(column)
    reordered = pa.concat_tables(table.slice(row, 1) for row in (3, 1, 2, 0)).column(index)
    assert digest(table.set_column(index, column, reordered)) != digest(table)


def test_what_lies_under_a_null_is_not_seen() -> None:
    def column(hidden: int) -> pa.Array:
        values = pa.py_buffer(np.array([1, hidden, 3], dtype=np.int64).tobytes())
        return pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(bytes([0b101])), values])

    assert digest(pa.table({"a": column(7)})) == digest(pa.table({"a": column(9)}))
    assert digest(pa.table({"a": column(7)})) != digest(pa.table({"a": [1, 7, 3]}))


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float64()), pa.large_list(pa.float64()), pa.list_(pa.float64(), 2)]
)
def test_lists_have_the_same_digest_when_they_are_read_back(kind: pa.DataType) -> None:
    table = pa.table({"weights": pa.array([[1.0, 2.0], [3.0, 4.0]], kind)})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    read = pq.read_table(buffer)
    assert digest(table) == digest(read)


def test_strings_do_not_run_into_each_other() -> None:
    assert digest(pa.table({"a": ["ab", "c"]})) != digest(pa.table({"a": ["a", "bc"]}))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(pa.array([1, 2]), pa.array([1, 2], pa.timestamp("us")), id="type"),
        pytest.param(pa.array([1, 2], pa.timestamp("s")), pa.array([1, 2], pa.timestamp("us")), id="unit"),
        pytest.param(pa.array([0, None]), pa.array([None, 0]), id="null and zero"),
        pytest.param(pa.array(["", None]), pa.array([None, ""]), id="null and empty"),
        pytest.param(pa.array([["a", "b"], ["c"]]), pa.array([["a"], ["b", "c"]]), id="lists"),
        pytest.param(
            pa.array([[1, 2], [3]], pa.large_list(pa.int64())),
            pa.array([[1], [2, 3]], pa.large_list(pa.int64())),
            id="large lists",
        ),
        pytest.param(
            pa.array([[1, 2], [3]], pa.list_view(pa.int64())),
            pa.array([[1], [2, 3]], pa.list_view(pa.int64())),
            id="list views",
        ),
        pytest.param(
            pa.array([[], None], pa.list_(pa.int64())),
            pa.array([None, []], pa.list_(pa.int64())),
            id="null and []",
        ),
        pytest.param(pa.array([{"k": None}, None]), pa.array([None, {"k": None}]), id="null and structure"),
    ],
)
def test_columns_of_the_same_bits_that_mean_another_thing_are_told_apart(
    one: pa.Array, other: pa.Array
) -> None:
    assert digest(pa.table({"a": one})) != digest(pa.table({"a": other}))
    assert digest(pa.table({"a": one})) != digest(pa.table({"b": one}))


def test_what_lies_under_a_null_list_view_is_not_seen() -> None:
    def column(hidden: int) -> pa.Array:
        offsets, sizes = pa.array([0, 0], pa.int32()), pa.array([2, hidden], pa.int32())
        mask = pa.array([False, True])
        return pa.ListViewArray.from_arrays(offsets, sizes, pa.array([5, 6]), mask=mask)

    assert column(0).to_pylist() == column(1).to_pylist() == [[5, 6], None]
    assert digest(pa.table({"a": column(0)})) == digest(pa.table({"a": column(1)}))


def test_plain_values_are_those_that_json_spells() -> None:
    given = {1: np.float32(0.5), "a": (np.int64(3), math.nan), "b": [np.float64("-inf"), True], "c": None}
    assert plain(given) == {"1": 0.5, "a": [3, None], "b": [None, True], "c": None}


def test_fingerprint_depends_on_each_ingredient() -> None:
    base = fingerprint("embed", "1", {"dtype": "float32"}, {"documents": "d1"})[0]
    assert fingerprint("embed", "1", {"dtype": "float32"}, {"documents": "d1"})[0] == base
    others = [
        fingerprint("score", "1", {"dtype": "float32"}, {"documents": "d1"}),
        fingerprint("embed", "2", {"dtype": "float32"}, {"documents": "d1"}),
        fingerprint("embed", "1", {"dtype": "bfloat16"}, {"documents": "d1"}),
        fingerprint("embed", "1", {"dtype": "float32"}, {"documents": "d2"}),
    ]
    assert len({base, *(other[0] for other in others)}) == 5
