"""A file of a record a second time: published files never change, so a second name does where the disk gives one."""

import os
import shutil
from pathlib import Path


def link_or_copy(source: str | Path, target: str | Path) -> str:
    """Make ``target`` the same file as ``source``, by a hard link, else by copying its bytes.

    Args:
        source: A file that nobody writes into again.
        target: Not there yet.

    Returns:
        The target, as `shutil.copytree` asks of what copies for it.

    Raises:
        OSError: neither is possible.
    """
    try:
        os.link(source, target)
    except OSError:  # another file system, one without links, or the file of another user
        shutil.copyfile(source, target)
    return str(target)
