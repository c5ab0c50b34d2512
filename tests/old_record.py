"""The record that version 0.1 made before its format was stated: two crawls of made-up prose, two arms, two tasks.

Made by the code at commit a692222 and kept as it was written, but for the pictures beside the parts. An older
selection of `datamask` (`lamb` 0.2) lies beside the current one.
"""

import hashlib
import tarfile
from pathlib import Path

ARCHIVE = Path(__file__).parent / "fixtures" / "record_0_1.tar.gz"
RELEASE = "first"
#: In for `datamask`, out for `random`.
SELECTED = "<urn:uuid:tiny-2024-10-00014>"
#: Never a candidate: its text is white space.
REJECTED = "<urn:uuid:tiny-2024-10-00028>"


def unpack(folder: Path) -> Path:
    """The record, its crawls and its configuration; returns `tiny.yaml`, whose paths are relative to its folder."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "tiny.yaml"


def tree(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder, and every directory."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "directory"
        for path in sorted(folder.rglob("*"))
    }
