"""The lines of a plain, gzip or zstd file, one at a time, in bounded memory. Knows no JSON and no file system."""

from collections.abc import Iterator
from typing import IO, Final

import pyarrow as pa

from datamask_pipeline.errors import InputError

CHUNK_BYTES: Final = 1 << 18

#: A longer line is cut after one byte more, so that a file of zeros cannot exhaust memory. JSON may write a
#: character of a text in six bytes.
MOST_LINE_BYTES: Final = 64 << 20

CODECS: Final = {".gz": "gzip", ".zst": "zstd"}


def raw_lines(stream: IO[bytes], location: str) -> Iterator[bytes]:
    """The file's lines that are not empty, decompressed as its suffix says.

    Yields:
        A line without its newline; of one longer than ``MOST_LINE_BYTES``, that many bytes and one more.

    Raises:
        InputError: the compressed stream is broken, ends early or has not begun: compressed, no line takes some bytes.
    """
    codec = next((codec for suffix, codec in CODECS.items() if location.lower().endswith(suffix)), None)
    if codec is None:
        yield from _split(stream)
        return
    try:
        with pa.CompressedInputStream(pa.PythonFile(stream, "r"), codec) as decompressed:
            yield from _split(decompressed)
            if stream.tell() == 0:
                raise InputError(
                    f"the file has no byte, where {codec} writes some for no line too: it was cut short",
                    file=location,
                    value="0 bytes",
                    remedy="fetch or write the file again, or remove it if it shall hold nothing",
                )
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the storage's own
        raise InputError(
            f"the compressed stream is broken: {error}", file=location, remedy="fetch or write the file again"
        ) from error


def _split(stream: IO[bytes]) -> Iterator[bytes]:
    pending: list[bytes] = []
    num_pending = 0
    while chunk := stream.read(CHUNK_BYTES):
        *whole, rest = chunk.split(b"\n")
        if whole:
            first = b"".join([*pending, whole[0]])
            # A newline alone costs no step of Python: a small file may hold thousands of millions of them.
            yield from filter(None, [first[: MOST_LINE_BYTES + 1], *whole[1:]])
            pending, num_pending = [], 0
        if num_pending <= MOST_LINE_BYTES:
            pending.append(rest)
            num_pending += len(rest)
    if last := b"".join(pending):
        yield last[: MOST_LINE_BYTES + 1]
