"""Tells what a remote file system's library raises as the storage's refusal. Knows no record and no library by name."""

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any

from datamask_pipeline.errors import DataMaskError, StorageError


def unreached(what: str, error: BaseException) -> StorageError:
    """The error that says so, in one line with the remedy."""
    return StorageError(
        f"{what} cannot be reached: {type(error).__name__}: {' '.join(str(error).split())}; check the address, "
        "the credentials and `storage_options`"
    )


def is_local(fs: Any) -> bool:
    """Whether a file system is this machine's own."""
    return "file" in protocols(fs)


def protocols(fs: Any) -> tuple[str, ...]:
    """The schemes of the URLs that a file system opens."""
    return fs.protocol if isinstance(fs.protocol, tuple) else (fs.protocol,)


def is_raised_by(fs: Any, error: BaseException) -> bool:
    """Whether a call of a remote file system's package, of whatever library below it, raised the error."""
    package = type(fs).__module__.partition(".")[0]
    modules = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    return not is_local(fs) and any(module.partition(".")[0] == package for module in modules)


@contextlib.contextmanager
def reaching(fs: Any, what: str) -> Iterator[None]:
    """Turn what a remote file system raises into an error with the remedy; other errors stay what they are.

    Args:
        fs: The file system.
        what: What lies on it, for the message.

    Raises:
        StorageError: the storage refuses, or does not answer.
    """
    try:
        yield
    except DataMaskError:
        raise
    except Exception as error:
        if not is_raised_by(fs, error):
            raise
        raise unreached(what, error) from error
