"""Memory-mapped arrays whose disk blocks are reserved at once. Knows no meaning of their numbers."""

from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from datamask_pipeline.disk import take_blocks
from datamask_pipeline.storage.refusals import storage_errors


def new_map(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> np.memmap:
    """A memory-mapped array of zeros; its folder is made.

    The disk's blocks are taken at once: in a file with holes a full disk would end the process at some later write.

    Raises:
        StorageError: there is no room, or the file system refuses.
    """
    num_bytes = max(1, int(np.prod(shape)) * np.dtype(dtype).itemsize)
    with storage_errors(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w+b") as stream:
            take_blocks(stream.fileno(), num_bytes)
        return np.memmap(path, dtype=dtype, mode="r+", shape=shape)
