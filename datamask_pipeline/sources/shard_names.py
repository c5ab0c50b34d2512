"""Names of shards, after the files they are. Knows no file system and no format."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Final

from datamask_pipeline.errors import InputError

#: A longer name would not fit into one of 255 bytes with what is added to it; it is cut, and ends with a digest.
MOST_BYTES: Final = 160
DIGEST_DIGITS: Final = 16


def by_shard_name(files: Iterable[tuple[str, str]], suffixes: Sequence[str]) -> dict[str, str]:
    """Shard name -> path, in the order given.

    Args:
        files: (path inside the crawl, whole path) of every file of one crawl.
        suffixes: Endings that are no part of a name.

    Raises:
        InputError: two files would be the same shard, or a name is not UTF-8.
    """
    named: dict[str, str] = {}
    for relative, path in files:
        name = _shard_name(relative, suffixes)
        if name in named:
            raise InputError(
                f"two files would be the same shard {name!r}",
                file=path,
                value=named[name],
                remedy="rename one of them",
            )
        named[name] = path
    return named


def shown_name(relative: str, suffixes: Sequence[str]) -> str:
    """A file's shard name, or its path where it can have none: two files may be told by the same."""
    try:
        return _shard_name(relative, suffixes)
    except InputError:
        return repr(relative)


def _shard_name(relative: str, suffixes: Sequence[str]) -> str:
    """The path without its suffix, as one path component that any file system takes."""
    stem = relative
    for suffix in sorted(suffixes, key=len, reverse=True):
        if stem.lower().endswith(suffix):
            stem = stem[: -len(suffix)]
            break
    name = "__".join(PurePosixPath(stem.replace("\\", "/")).parts)
    try:
        raw = name.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            "a file's name is not valid UTF-8", file=repr(relative), remedy="rename the file"
        ) from error
    if len(raw) > MOST_BYTES:
        kept = raw[: MOST_BYTES - DIGEST_DIGITS - 1].decode(errors="ignore")
        name = f"{kept}-{hashlib.sha256(raw).hexdigest()[:DIGEST_DIGITS]}"
    return name
