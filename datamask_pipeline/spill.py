"""Long arrays that need no memory of their own: they lie in files without a name. Knows no meaning of their numbers.

The system writes such an array out and reads it back as memory asks; of a folder that lies in memory nothing is won.
"""

import mmap
import tempfile
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from datamask_pipeline.disk import take_blocks

LONG = 1 << 20
"""Bytes from which an array lies in a file."""


class Room:
    """Where long arrays lie. A file whose array is gone serves the next one that fills half of it; all go with the last one.

    Args:
        folder: On which disk; the system's temporary folder by default.
    """

    def __init__(self, folder: Path | str | None = None) -> None:
        self._folder = folder
        self._free: list[mmap.mmap] = []
        self._taking = threading.Lock()

    def array(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array whose numbers are yet to be written.

        Args:
            shape: Its shape, or how many.
            dtype: Of what kind.

        Raises:
            OSError: there is no room, or the file system refuses.
        """
        length = int(np.prod(shape, dtype=np.int64))
        num_bytes = length * np.dtype(dtype).itemsize
        if num_bytes < LONG:
            return np.empty(shape, dtype)
        block = self._free_block(num_bytes) or self._block(num_bytes)
        array: NDArray[Any] = np.frombuffer(block, dtype, length)
        weakref.finalize(array, self._free.append, block).atexit = False  # every part of it refers to it
        return array.reshape(shape)

    def taken(self, values: NDArray[Any], places_n: NDArray[np.integer], axis: int = 0) -> NDArray[Any]:
        """Some of an array: numbers, rows or columns.

        Args:
            values: Of what.
            places_n: Where each is found, from 0 on.
            axis: Along which.

        Raises:
            OSError: there is no room, or the file system refuses.
        """
        found = self.array((*values.shape[:axis], len(places_n), *values.shape[axis + 1 :]), values.dtype)
        # Places are known to be there; with mode="raise" numpy would copy once more.
        return np.take(values, places_n, axis, out=found, mode="clip")

    def _free_block(self, num_bytes: int) -> mmap.mmap | None:
        """The shortest that is free and long enough, unless more than half of it would lie idle."""
        with self._taking:
            fitting = [block for block in self._free if num_bytes <= len(block) <= 2 * num_bytes]
            if not fitting:
                return None
            shortest = min(fitting, key=len)
            self._free.remove(shortest)
            return shortest

    def _block(self, num_bytes: int) -> mmap.mmap:
        with tempfile.TemporaryFile(dir=self._folder) as file:
            take_blocks(file.fileno(), num_bytes)
            return mmap.mmap(file.fileno(), num_bytes)
