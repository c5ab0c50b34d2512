"""Folders that may not be listed, as those of other users: root, as whom tests may run, may list all."""

import errno
import os
from pathlib import Path

import pytest


def refuse_listings(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Listing any of those folders is refused from now on."""
    listed = os.scandir

    def scandir(folder: str) -> object:
        if Path(folder) in folders:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        return listed(folder)

    monkeypatch.setattr(os, "scandir", scandir)
