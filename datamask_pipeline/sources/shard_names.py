"""Names of shards, after the files they are. Knows no file system and no format."""

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from datamask_pipeline.errors import InputError


def by_shard_name(files: Iterable[tuple[str, str]], suffixes: Sequence[str]) -> dict[str, str]:
    """Shard name -> path, in the order given.

    Args:
        files: (path inside the crawl, whole path) of every file of one crawl.
        suffixes: Endings that are no part of a name.

    Raises:
        InputError: two files would be the same shard.
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


def _shard_name(relative: str, suffixes: Sequence[str]) -> str:
    """The path without its suffix, as one path component."""
    stem = relative
    for suffix in sorted(suffixes, key=len, reverse=True):
        if stem.endswith(suffix):
            stem = stem[: -len(suffix)]
            break
    return "__".join(PurePosixPath(stem).parts)
