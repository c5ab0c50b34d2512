"""The lines of a plain, gzip or zstd file, one at a time. Knows no JSON and no file system."""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from typing import IO

from datamask_pipeline.errors import InputError

CHUNK_BYTES = 1 << 18


def raw_lines(stream: IO[bytes], location: str) -> Iterator[bytes]:
    """The file's lines, decompressed as its suffix says.

    Raises:
        InputError: the compressed stream is broken or ends early.
    """
    import zstandard

    try:
        if location.endswith(".gz"):
            yield from gzip.GzipFile(fileobj=stream)
        elif location.endswith(".zst"):
            yield from _split(_zstd_chunks(stream))
        else:
            yield from _split(iter(lambda: stream.read(CHUNK_BYTES), b""))
    except (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError) as error:
        raise InputError(
            f"the compressed stream is broken: {error}", file=location, remedy="fetch or write the file again"
        ) from error


def _zstd_chunks(stream: IO[bytes]) -> Iterator[bytes]:
    """Decompressed bytes of one or more frames; unlike zstandard's own reader, a cut frame is an error."""
    import zstandard

    frame = zstandard.ZstdDecompressor().decompressobj()
    begun = False
    while chunk := stream.read(CHUNK_BYTES):
        while chunk:
            begun = True
            yield frame.decompress(chunk)
            chunk = frame.unused_data if frame.eof else b""
            if frame.eof:
                frame, begun = zstandard.ZstdDecompressor().decompressobj(), False
    if begun:
        raise EOFError("the last frame ends early")


def _split(chunks: Iterable[bytes]) -> Iterator[bytes]:
    pending: list[bytes] = []
    for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        if whole:
            yield b"".join([*pending, whole[0]])
            yield from whole[1:]
            pending = []
        pending.append(rest)
    if last := b"".join(pending):
        yield last
