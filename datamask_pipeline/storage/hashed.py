"""SHA-256 of files. Knows no artefact."""

import hashlib
from pathlib import Path
from typing import Any, Final

#: Bytes read at a time.
_PIECE: Final = 1 << 22


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_at(fs: Any, path: str) -> str:
    """SHA-256 of a file on a file system, in hexadecimal."""
    hashed = hashlib.sha256()
    with fs.open(path, "rb") as stream:
        while piece := stream.read(_PIECE):
            hashed.update(piece)
    return hashed.hexdigest()
