"""Arrow arrays made of their bytes, the bytes of Arrow arrays, and ranks of numbers. Knows no column and no file.

``pa.array``, ``pa.scalar``, ``to_numpy`` and every method that computes import pandas or all of Arrow's kernels,
which takes longer than reading a thousand documents; these do not.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_PIECE = 1 << 16
"""Different values at a time, of which what is made on the way takes little memory."""


def string_bytes(strings: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Where each string begins and ends in the bytes of all, and those bytes; they are not copied.

    Args:
        strings: N strings or binaries, of 32-bit or 64-bit offsets; what lies under a null is among the bytes.

    Returns:
        N + 1 edges, the first 0, and the bytes.
    """
    _, edges_buffer, data_buffer = strings.buffers()
    if len(strings) == 0:
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    kind = np.dtype(np.int64 if strings.type in (pa.large_string(), pa.large_binary()) else np.int32)
    edges = np.frombuffer(edges_buffer, kind, len(strings) + 1, strings.offset * kind.itemsize).astype(
        np.int64
    )
    if data_buffer is None:
        return edges - edges[0], np.empty(0, np.uint8)
    return edges - edges[0], np.frombuffer(data_buffer, np.uint8)[edges[0] : edges[-1]]


def int64_array(values: NDArray[np.int64]) -> pa.Int64Array:
    """The values, none of them null."""
    return pa.Int64Array.from_buffers(
        pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))]
    )


def values_of(array: pa.Array, dtype: type[np.generic] | np.dtype[Any]) -> NDArray[Any]:
    """The values of a fixed-width array, not copied; what lies under a null is among them."""
    return np.frombuffer(array.buffers()[1] or b"", dtype)[array.offset : array.offset + len(array)]


def are_null(array: pa.Array) -> NDArray[np.bool_]:
    """Where there is null."""
    bitmap = array.buffers()[0]
    if array.null_count in (0, len(array)) or bitmap is None:
        return np.full(len(array), array.null_count > 0)
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    found: NDArray[np.bool_] = bits[array.offset : array.offset + len(array)] == 0
    return found


def string_array(values: Sequence[str | None]) -> pa.StringArray:
    """The strings; ``None`` is null.

    Raises:
        UnicodeEncodeError: a string holds a lone surrogate.
    """
    raw = [b"" if value is None else value.encode() for value in values]
    edges = np.zeros(len(raw) + 1, np.int32)
    edges[1:] = np.cumsum([len(item) for item in raw])
    valid = np.packbits(np.array([value is not None for value in values], bool), bitorder="little")
    buffers = (pa.py_buffer(edges), pa.py_buffer(b"".join(raw)), pa.py_buffer(valid))
    return pa.StringArray.from_buffers(len(raw), *buffers)


def equal_strings(data: bytes, num_bytes: int) -> pa.StringArray:
    """Strings of one length, side by side in ``data``; ASCII.

    Args:
        data: The strings' bytes, a multiple of ``num_bytes``.
        num_bytes: Length of each, at least 1.
    """
    edges = np.arange(0, len(data) + 1, num_bytes, dtype=np.int32)
    return pa.StringArray.from_buffers(len(edges) - 1, pa.py_buffer(edges), pa.py_buffer(data))


def without_rows(batch: pa.RecordBatch, dropped: Sequence[int]) -> pa.RecordBatch:
    """The batch without these rows, copied run by run.

    Args:
        batch: Any columns.
        dropped: Rows, ascending and each once.
    """
    if not dropped:
        return batch
    starts = (0, *(row + 1 for row in dropped))
    runs = zip(starts, (*dropped, batch.num_rows), strict=True)
    return pa.concat_batches([batch.slice(start, end - start) for start, end in runs])


def mean_ranks(values_N: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rank of each value from 0 to 1; equal values share the mean of their ranks. One value alone is 0.5.

    Args:
        values_N: Finite.
    """
    if len(values_N) < 2:
        return np.full(len(values_N), 0.5)
    order_N = np.argsort(values_N)
    ordered_N = values_N[order_N]
    is_edge = np.ones(len(values_N) + 1, bool)
    np.not_equal(ordered_N[1:], ordered_N[:-1], out=is_edge[1:-1])
    edges = np.flatnonzero(is_edge)
    del ordered_N, is_edge
    ranks_N = np.empty(len(values_N))
    for first in range(0, len(edges) - 1, _PIECE):
        part = edges[first : first + _PIECE + 1]
        middles = (part[:-1] + part[1:] - 1) / 2 / (len(values_N) - 1)
        ranks_N[order_N[part[0] : part[-1]]] = np.repeat(middles, np.diff(part))
    return ranks_N


def flags_of(array: pa.BooleanArray) -> NDArray[np.bool_]:
    """Where there is true."""
    if len(array) == 0:
        return np.zeros(0, bool)
    bits = np.unpackbits(np.frombuffer(array.buffers()[1], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(bool) & ~are_null(array)


def places_array(places_n: NDArray[np.int64], are_there_n: NDArray[np.bool_]) -> pa.Int64Array:
    """Places to take rows from, null where there is none."""
    bitmap = np.packbits(are_there_n, bitorder="little")
    values = np.ascontiguousarray(places_n, np.int64)
    return pa.Int64Array.from_buffers(pa.int64(), len(values), [pa.py_buffer(bitmap), pa.py_buffer(values)])
