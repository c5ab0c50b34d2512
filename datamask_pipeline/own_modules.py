"""Keeps a foreign `assets` or `resources` from being taken for ours; imported first where steps are forked from.

Python puts the folder where that process was started at the head of its path.
"""

import os
import sys
from pathlib import Path

_OURS = Path(__file__).resolve().parent.parent


def _is_foreign(entry: str) -> bool:
    return Path(entry).resolve() == Path.cwd() != _OURS


if os.path.isdir(os.curdir):  # it may have been removed
    sys.path[:] = [entry for entry in sys.path if not _is_foreign(entry)]
