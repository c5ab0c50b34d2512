"""When two documents say the same. Knows no document beyond its text.

The stored text stays as it came; only the hash is taken of the normal form.
"""

import hashlib
import itertools
import unicodedata
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datamask_pipeline.arrays import equal_strings, string_bytes

ASCII_WHITE_SPACE: Final = b" \t\n\r\v\f"

#: Bytes of text whose kept positions are held at a time; a processor's cache holds them.
CHUNK_BYTES: Final = 1 << 17

#: First bytes of UTF-8 characters among which are some that composition may change: all but ASCII, U+0080 to
#: U+02FF, U+0400 to U+047F, U+4000 to U+9FFF, U+B000 to U+CFFF.
COMPOSING: Final = np.isin(
    np.arange(256), [*range(0xCC, 0xD0), *range(0xD2, 0xE4), 0xEA, *range(0xED, 0x100)]
)

#: The same by the first two bytes, where they tell more: of U+2000 to U+2FFF few characters may change (among
#: the others are most dashes, quotation marks, arrows and signs of mathematics), of U+FE80 to U+FFFF and of
#: U+1F000 to U+1FFFF, where emoji stand, none.
COMPOSING_PAIR: Final = np.repeat(COMPOSING[:, None], 256, axis=1)
COMPOSING_PAIR[0xE2] = np.isin(np.arange(256), [0x80, 0x83, 0x84, 0x8C, 0xAB, 0xB3, 0xB5, 0xB7])
COMPOSING_PAIR[0xEF, 0xBA:] = False
COMPOSING_PAIR[0xF0, 0x9F] = False


def normal_form(raw: bytes) -> bytes:
    """UTF-8 of the text in Unicode NFC, without ASCII white space.

    Args:
        raw: The text as UTF-8.
    """
    if not raw.isascii():
        text = raw.decode("utf-8")
        if not unicodedata.is_normalized("NFC", text):
            raw = unicodedata.normalize("NFC", text).encode("utf-8")
    return raw.translate(None, ASCII_WHITE_SPACE)


def content_hash(text: str | bytes) -> str:
    """SHA-256 of the normal form, in hexadecimal; equal for texts that differ in ASCII white space alone.

    Raises:
        UnicodeError: the text holds a lone surrogate, or is not UTF-8.
    """
    raw = text.encode("utf-8") if isinstance(text, str) else text
    return hashlib.sha256(normal_form(raw)).hexdigest()


def content_hashes(texts: pa.StringArray) -> pa.StringArray:
    """``content_hash`` of every text, by whole columns: no Python string is made of a text in Latin letters.

    Args:
        texts: Valid UTF-8 without null.
    """
    edges, data = string_bytes(texts)
    compact, compact_edges, doubted = _without_white_space(data, edges)
    view = compact.data
    digests = [
        hashlib.sha256(view[first:last]).digest()
        for first, last in itertools.pairwise(compact_edges.tolist())
    ]
    for row in doubted:
        raw = data[edges[row] : edges[row + 1]].tobytes()
        if not unicodedata.is_normalized("NFC", raw.decode()):
            digests[row] = hashlib.sha256(normal_form(raw)).digest()
    return equal_strings(b"".join(digests).hex().encode(), 64)


def _without_white_space(
    data: NDArray[np.uint8], edges: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64], list[int]]:
    """The bytes without ASCII white space, the edges in what remains, and the rows that may not be in NFC.

    No byte of a longer UTF-8 character is ASCII, so bytes can be dropped without decoding.
    """
    kept = np.empty(len(data), np.uint8)
    kept_edges = np.zeros_like(edges)
    doubted = set()
    size = 0
    for start in range(0, len(data), CHUNK_BYTES):
        chunk = data[start : start + CHUNK_BYTES]
        # Tab to carriage return are 9 to 13; smaller bytes wrap around.
        index = np.flatnonzero((chunk - np.uint8(9) > 4) & (chunk != 32))
        kept[size : size + len(index)] = chunk[index]
        first, last = np.searchsorted(edges, [start, start + len(chunk)], side="right")
        kept_edges[first:last] = size + np.searchsorted(index, edges[first:last] - start)
        size += len(index)
        composing = _may_compose(data, start + np.flatnonzero(chunk >= 0xCC))
        doubted.update((np.searchsorted(edges, composing, side="right") - 1).tolist())
    return kept[:size], kept_edges, sorted(doubted)


def _may_compose(data: NDArray[np.uint8], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of the places of first bytes, those of characters that composition may change."""
    places = places[COMPOSING_PAIR[data[places], data[places + 1]]]
    # U+2002 to U+203F may not.
    third = data.take(places + 2, mode="clip")
    dash_or_quote = (data[places] == 0xE2) & (data[places + 1] == 0x80) & (third >= 0x82)
    kept: NDArray[np.int64] = places[~dash_or_quote]
    return kept
