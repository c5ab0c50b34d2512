"""Whether a folder of this machine can be made and written, told without making anything. Knows no record."""

import os
from pathlib import Path

#: Where Linux shows what it knows; no file can be added there, whoever asks.
SHOWN_BY_THE_SYSTEM = ("/proc", "/sys")


def unwritable(folder: str) -> str | None:
    """Why a folder cannot be made or written; ``None`` where nothing speaks against it.

    Args:
        folder: Its path; it and folders above it may be missing.
    """
    place = Path(folder).absolute()
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        return f"{str(place)!r} is not a directory"
    shown = [Path(path).stat().st_dev for path in SHOWN_BY_THE_SYSTEM if os.path.ismount(path)]
    if place.stat().st_dev in shown:
        return f"{str(place)!r} belongs to the operating system, which takes no files there"
    if not os.access(place, os.W_OK | os.X_OK):
        return f"{str(place)!r} may not be written by this user"
    return None
