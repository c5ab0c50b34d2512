"""Arrow arrays made of their bytes, and the bytes of Arrow arrays. Knows no column and no file.

``pa.array``, ``pa.scalar`` and ``to_numpy`` import pandas, which takes longer than reading ten thousand documents;
these do not.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def string_bytes(strings: pa.StringArray) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Where each string begins and ends in the bytes of all, and those bytes; they are not copied.

    Args:
        strings: N strings; what lies under a null is among the bytes.

    Returns:
        N + 1 edges, the first 0, and the bytes.
    """
    _, edges_buffer, data_buffer = strings.buffers()
    if len(strings) == 0:
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    edges = np.frombuffer(edges_buffer, np.int32, len(strings) + 1, strings.offset * 4).astype(np.int64)
    if data_buffer is None:
        return edges - edges[0], np.empty(0, np.uint8)
    return edges - edges[0], np.frombuffer(data_buffer, np.uint8)[edges[0] : edges[-1]]


def int64_array(values: NDArray[np.int64]) -> pa.Int64Array:
    """The values, none of them null."""
    return pa.Int64Array.from_buffers(
        pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))]
    )


def values_of(array: pa.Array, dtype: type[np.generic]) -> NDArray[Any]:
    """The values of a fixed-width array, not copied; what lies under a null is among them."""
    return np.frombuffer(array.buffers()[1] or b"", dtype)[array.offset : array.offset + len(array)]


def are_null(array: pa.Array) -> NDArray[np.bool_]:
    """Where there is null."""
    return values_of(array.is_null().cast(pa.uint8()), np.bool_)


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
