"""Writes files such that a disk without room is told as one, and a cut of power leaves them whole. Knows no meaning of them.

`numpy.save` and `tofile` write by the C library: on a full disk they raise an error without a number, which nobody can
tell from another, or cut the file's end off and raise none. What `open_memmap` makes has holes, and the system ends the
process that writes into one for which there is no room.
"""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def save_array(path: Path, values: NDArray[Any]) -> None:
    """Write an array as `numpy.save` would, byte for byte.

    Raises:
        OSError: there is no room, or the file system refuses.
    """
    with path.open("wb") as stream:
        # Numpy writes to what has no file number by its `write`.
        np.lib.format.write_array(SimpleNamespace(write=stream.write), values, allow_pickle=False)


def new_array(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> np.memmap:
    """A `.npy` file of zeros, mapped to be written to, for which there is room.

    Raises:
        OSError: there is none, or the file system refuses.
    """
    mapped: np.memmap = np.lib.format.open_memmap(path, "w+", dtype, shape)
    with path.open("r+b") as stream:
        take_blocks(stream.fileno(), path.stat().st_size)
    return mapped


def take_blocks(file: int, num_bytes: int) -> None:
    """Take the disk's blocks of an open file at once, and make it so long.

    Raises:
        OSError: there is no room, or the file system refuses.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, num_bytes)
    else:
        os.truncate(file, num_bytes)


def kind_of(path: Path) -> str | None:
    """What lies there that no file may be put in the place of: a folder, a link, a device or pipe; None if nothing such.

    A file that is written under another name and renamed would take the place of ``/dev/null``, or of a link.
    """
    if path.is_symlink():
        return "a link"
    if path.is_dir():
        return "a folder"
    return "a device or pipe" if path.exists() and not path.is_file() else None


def sync(path: Path) -> None:
    """Bring a file, or every file of a folder, onto the disk: after a cut of power one renamed before may be empty.

    Raises:
        OSError: there is no room, or the file system refuses.
    """
    for each in path.rglob("*") if path.is_dir() else [path]:
        if each.is_file():
            with each.open("rb") as stream:
                os.fsync(stream.fileno())
