"""What the operating system and Arrow refuse, as errors of the pipeline that name the remedy. Knows no store."""

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from datamask_pipeline.errors import DataMaskError, IntegrityError, StorageError

#: What the system says of writing alone: the disk, a quota or a limit on files is full, or the disk is read-only by now.
OF_WRITING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})

#: What helps against a file that is lost or damaged.
AGAIN: Final = "run its stage again, which writes a missing file anew; delete a damaged one before"


@contextlib.contextmanager
def storage_errors(what: str, setting: str = "store") -> Iterator[None]:
    """Turn the operating system's refusals into a ``StorageError`` that names the remedy.

    Args:
        what: What is written.
        setting: The setting or option that says where.
    """
    try:
        yield
    except DataMaskError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(f"no room left while writing {what}: free disk space and run again") from error
        if error.errno == errno.EFBIG:
            raise StorageError(
                f"{what} would be larger than a file may be here ({os.strerror(error.errno)}); raise this user's or "
                "service's limit (`ulimit -f`), or take a file system that holds larger files, and run again"
            ) from error
        raise StorageError(
            f"cannot write {what}: {error}; check `{setting}` and who may write there"
        ) from error


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """Tell what is `OF_WRITING` as ``storage_errors``, wherever inside something is written; other errors stay what they
    are.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in OF_WRITING:
            raise
        with storage_errors(what):
            raise


@contextlib.contextmanager
def finding(path: str) -> Iterator[None]:
    """Tell a file that is not there as one that was lost; other errors stay what they are."""
    try:
        yield
    except FileNotFoundError as error:
        raise IntegrityError(f"{path} is lost; {AGAIN}") from error


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Say which file cannot be read: inside a block that writes, the other file would be blamed."""
    try:
        yield
    except (FileNotFoundError, pa.ArrowException, UnicodeDecodeError) as error:
        raise IntegrityError(f"cannot read {path}: {_in_one_line(error)}; {AGAIN}") from error
    except OSError as error:
        raise StorageError(f"cannot read {path}: {_in_one_line(error)}; {AGAIN}") from error


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())
