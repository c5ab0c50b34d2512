"""Arrays made of bytes, and bytes of arrays, are what Arrow's own functions say."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamask_pipeline.arrays import are_null, equal_strings, string_bytes, without_rows


@given(
    values=st.lists(st.one_of(st.none(), st.text(max_size=4)), max_size=20),
    cut=st.integers(0, 9),
    kind=st.sampled_from([pa.string(), pa.large_string()]),
)
def test_bytes_and_nulls_of_any_slice(values: list[str | None], cut: int, kind: pa.DataType) -> None:
    array = pa.array(values, kind).slice(cut)
    edges, data = string_bytes(array)
    found = [
        None if null else data[first:last].tobytes().decode()
        for null, first, last in zip(are_null(array), edges[:-1], edges[1:], strict=True)
    ]
    assert found == values[cut:]


@given(num_rows=st.integers(0, 12), data=st.data())
def test_rows_dropped_are_those_named(num_rows: int, data: st.DataObject) -> None:
    dropped = data.draw(st.sets(st.integers(0, num_rows - 1))) if num_rows else set()
    batch = pa.RecordBatch.from_pydict({"n": range(num_rows), "s": [str(n) for n in range(num_rows)]})
    kept = without_rows(batch, sorted(dropped)).to_pylist()
    assert kept == [{"n": n, "s": str(n)} for n in range(num_rows) if n not in dropped]


@pytest.mark.parametrize("words", [[], ["ab"], ["ab", "cd", "ef"]])
def test_strings_of_one_length(words: list[str]) -> None:
    found = equal_strings("".join(words).encode(), 2)
    found.validate(full=True)
    assert found.to_pylist() == words


def test_none_of_them_loads_pandas_or_all_kernels() -> None:
    code = (
        "import sys, pyarrow as pa; from datamask_pipeline import arrays as a\n"
        "s = a.string_array(['x', None]); a.are_null(s); a.string_bytes(s)\n"
        "a.without_rows(pa.RecordBatch.from_arrays([s], schema=pa.schema([('s', pa.string())])), [1])\n"
        "sys.exit(any(name in sys.modules for name in ('pandas', 'pyarrow.compute')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_values_of_a_column_of_nulls() -> None:
    assert are_null(pa.nulls(3, pa.string())).tolist() == [True] * 3
    assert np.array_equal(string_bytes(pa.nulls(3, pa.string()))[0], np.zeros(4))
