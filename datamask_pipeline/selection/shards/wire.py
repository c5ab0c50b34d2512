"""A message as bytes: names, plain values and arrays. Knows no process; nothing in it is code.

A message is a dict of JSON values and arrays, the arrays among its values or in a dict or list there.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

ARRAY = "\0array"
Message = dict[str, Any]


def pack(message: Message) -> bytes:
    """The message as bytes: the length of its JSON, its JSON, and its arrays one after the other."""
    arrays: list[Any] = []

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            array = np.ascontiguousarray(value).reshape(value.shape)
            arrays.append(array)
            return {ARRAY: [array.dtype.str, list(array.shape)]}
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, dict):
            return {name: plain(one) for name, one in value.items()}
        return [plain(one) for one in value] if isinstance(value, list | tuple) else value

    head = json.dumps(plain(message)).encode()
    bits = (array.reshape(-1).view(np.uint8) for array in arrays)
    return b"".join([len(head).to_bytes(8, "big"), head, *bits])


def unpack(data: bytes | memoryview) -> Message:
    """The message; its arrays are copies and may be written to."""
    end = 8 + int.from_bytes(data[:8], "big")
    place = end

    def whole(value: Any) -> Any:
        nonlocal place
        if isinstance(value, dict):
            if ARRAY in value:
                kind, shape = value[ARRAY]
                dtype, count = np.dtype(kind), int(np.prod(shape, dtype=np.int64))
                array = np.frombuffer(data, dtype, count, place).reshape(shape).copy()
                place += array.nbytes
                return array
            return {name: whole(one) for name, one in value.items()}
        return [whole(one) for one in value] if isinstance(value, list) else value

    message: Message = whole(json.loads(bytes(data[8:end])))
    return message
