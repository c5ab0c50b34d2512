"""A limit on the size of files, which stands for a disk without room."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_file_above(num_bytes: int) -> Iterator[None]:
    """Inside it, this process can write no file that is larger."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
