"""This machine's files, of which no listing leaves out in silence what cannot be read. Knows no record."""

import posixpath
from collections.abc import Callable, Iterator
from typing import Any, Literal

from fsspec.implementations import local

from datamask_pipeline.errors import StorageError

#: A disk's own folder, at the top of what may be a record: closed to all but root.
LOST_AND_FOUND = "lost+found"


def refuse_unlisted(error: OSError) -> None:
    """Refuse a folder that is there and cannot be listed: fsspec by itself takes it for empty.

    Raises:
        StorageError: naming the folder.
    """
    folder = str(error.filename)
    if isinstance(error, FileNotFoundError | NotADirectoryError):  # removed meanwhile, or never there
        return
    if posixpath.basename(folder) != LOST_AND_FOUND:
        raise StorageError(
            f"{folder} cannot be listed: {error.strerror}; make it readable to who runs this: nobody knows what is there"
        ) from error


class LocalFileSystem(local.LocalFileSystem):  # pyarrow goes by the name
    """As fsspec's."""

    def walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: Literal["omit", "raise"] | Callable[[OSError], None] = refuse_unlisted,
        **kwargs: Any,
    ) -> Iterator[Any]:
        yield from super().walk(path, maxdepth, topdown, on_error, **kwargs)
