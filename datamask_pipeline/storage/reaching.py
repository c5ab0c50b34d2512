"""Opens file systems, and tells what a remote one's library raises as the storage's refusal. Knows no record."""

import contextlib
import re
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

from datamask_pipeline.errors import ConfigurationError, DataMaskError, StorageError


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


def file_system_of(url: str, options: Mapping[str, Any], *, setting: str) -> tuple[Any, str]:
    """The file system of a directory or fsspec URL, and the path on it.

    Args:
        url: The directory or URL.
        options: Passed to the file system.
        setting: What the configuration calls the URL, for the message.

    Raises:
        ConfigurationError: there is no such file system, its library is not installed, or the URL holds a password, which
            would stand wherever the URL is shown.
    """
    import fsspec

    if re.search(r"//[^/@]*:[^/]*@", url):
        raise ConfigurationError(
            f"{setting}: a URL that holds a password would show it; leave it out, and give credentials in "
            "`storage_options` or as the library of that file system reads them from the environment"
        )

    remedy = "name a directory, or a URL that fsspec knows, such as s3://bucket/prefix"
    try:
        fs, path = fsspec.core.url_to_fs(url, **options)
    except (ImportError, ValueError, TypeError, OSError) as error:
        if isinstance(error, ImportError):
            remedy = "install that package with pip, or " + remedy
        problem = str(error).partition("\n")[0]
        raise ConfigurationError(f"{setting} {url!r} cannot be opened: {problem}; {remedy}") from error
    if not is_local(fs):
        return fs, path
    # Here, as it imports fsspec.
    from datamask_pipeline.storage.local_files import LocalFileSystem

    # Below the root directory fsspec makes a relative path begin with two slashes.
    return LocalFileSystem(**fs.storage_options), re.sub("^//+", "/", path)
