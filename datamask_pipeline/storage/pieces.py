"""Digests of each mebibyte of an artefact's tables, so that what a reader reads can be checked without the rest.

Knows files and bytes; knows no table. The file holds 32 bytes of SHA-256 for every piece of every part in the manifest's
order, then of the index of rows.
"""

import hashlib
import io
from collections.abc import Mapping
from typing import IO, Any, Final

from datamask_pipeline.errors import IntegrityError

#: The file beside the parts; no part's file ends so.
PIECES_FILE: Final = "pieces.sha256"
PIECE_BYTES: Final = 1 << 20
DIGEST_BYTES: Final = 32
_REMEDY: Final = (
    "`datamask audit prove` tells more; delete the file and run its stage again, which makes it anew"
)


def digests_of(stream: IO[bytes]) -> bytes:
    """The digests of a file's pieces, one after the other."""
    found = bytearray()
    while piece := stream.read(PIECE_BYTES):
        found += hashlib.sha256(piece).digest()
    return bytes(found)


def num_pieces(num_bytes: int) -> int:
    """How many pieces a file of that length has."""
    return -(-num_bytes // PIECE_BYTES)


def split(digests: bytes, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """The digests of each file.

    Args:
        digests: All of them.
        sizes: The files' lengths by name, in the order of their digests.
    """
    found, first = {}, 0
    for name, num_bytes in sizes.items():
        last = first + num_pieces(num_bytes) * DIGEST_BYTES
        found[name] = digests[first:last]
        first = last
    return found


class CheckedFile(io.RawIOBase):
    """A file of which each piece that is read is held against its digest first.

    Args:
        stream: The file, opened.
        num_bytes: The length it must have.
        digests: Those of its pieces.
        path: What a message calls it.

    Raises:
        IntegrityError: on reading, where the bytes are others than were written.
    """

    def __init__(self, stream: IO[bytes], num_bytes: int, digests: bytes, path: str) -> None:
        self._stream, self._num_bytes, self._digests, self._path = stream, num_bytes, digests, path
        self._place = 0
        self._number, self._piece = -1, b""

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._num_bytes}[whence]
        self._place = max(0, origin + offset)
        return self._place

    def tell(self) -> int:
        """The place."""
        return self._place

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer, up to the end of the piece."""
        view = memoryview(buffer).cast("B")
        if self._place >= self._num_bytes or not view:
            return 0
        piece = self._checked(self._place // PIECE_BYTES)
        data = piece[self._place % PIECE_BYTES :][: len(view)]
        view[: len(data)] = data
        self._place += len(data)
        return len(data)

    def read(self, size: int | None = -1) -> bytes:
        """Read some bytes, fewer only where the file ends."""
        wanted = self._num_bytes - self._place if size is None or size < 0 else size
        found = bytearray()
        while len(found) < wanted and self._place < self._num_bytes:
            piece = self._checked(self._place // PIECE_BYTES)
            data = piece[self._place % PIECE_BYTES :][: wanted - len(found)]
            found += data
            self._place += len(data)
        return bytes(found)

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._stream.close()
        super().close()

    def _checked(self, number: int) -> bytes:
        """A piece whose bytes are those that were written."""
        if number == self._number:
            return self._piece
        self._stream.seek(number * PIECE_BYTES)
        wanted = min(PIECE_BYTES, self._num_bytes - number * PIECE_BYTES)
        piece = self._stream.read(wanted)
        digest = self._digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]
        if hashlib.sha256(piece).digest() != digest:
            raise IntegrityError(f"{self._path} holds other bytes than were written to it; {_REMEDY}")
        self._number, self._piece = number, piece
        return piece
