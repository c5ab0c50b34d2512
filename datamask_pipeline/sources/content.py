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

#: Bytes of texts hashed at a time; a processor's cache holds them and the positions of those kept.
CHUNK_BYTES: Final = 1 << 18

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
    """SHA-256 of the normal form, in hexadecimal: equal for texts that differ in ASCII white space or composition alone.

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
    digests: list[bytes] = []
    while (first := len(digests)) < len(texts):
        end = int(np.searchsorted(edges, edges[first] + CHUNK_BYTES, side="right")) - 1
        if end > first:
            group = slice(edges[first], edges[end])
            digests += _digests(data[group], edges[first : end + 1] - edges[first])
        else:
            digests.append(
                hashlib.sha256(normal_form(data[edges[first] : edges[first + 1]].tobytes())).digest()
            )
    return equal_strings(b"".join(digests).hex().encode(), 64)


def _digests(data: NDArray[np.uint8], edges: NDArray[np.int64]) -> list[bytes]:
    """SHA-256 of the normal form of some texts, few enough for a processor's cache.

    No byte of a longer UTF-8 character is ASCII, so white space can be dropped without decoding.
    """
    # Tab to carriage return are 9 to 13; smaller bytes wrap around.
    index = np.flatnonzero((data - np.uint8(9) > 4) & (data != 32))
    kept = data.take(index).data
    kept_edges = np.searchsorted(index, edges).tolist()
    digests = [hashlib.sha256(kept[first:last]).digest() for first, last in itertools.pairwise(kept_edges)]
    composing = _may_compose(data, np.flatnonzero(data >= 0xCC))
    for row in np.unique(np.searchsorted(edges, composing, side="right") - 1).tolist():
        raw = data[edges[row] : edges[row + 1]].tobytes()
        if not unicodedata.is_normalized("NFC", raw.decode()):
            digests[row] = hashlib.sha256(normal_form(raw)).digest()
    return digests


def _may_compose(data: NDArray[np.uint8], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of the places of first bytes, those of characters that composition may change."""
    places = places[COMPOSING_PAIR[data[places], data[places + 1]]]
    # U+2002 to U+203F may not.
    third = data.take(places + 2, mode="clip")
    dash_or_quote = (data[places] == 0xE2) & (data[places + 1] == 0x80) & (third >= 0x82)
    kept: NDArray[np.int64] = places[~dash_or_quote]
    return kept
