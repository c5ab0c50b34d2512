"""The filters: why a row becomes no document. Knows one row at a time: no file, no other row, no storage.

What makes a row unfit is always rejected; the filters reject only what their settings name.
"""

import re
from collections.abc import Sequence
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from datamask_pipeline.arrays import are_null, string_bytes, values_of
from datamask_pipeline.settings import Settings

#: Every reason a rejected row can carry, and what it says.
REASONS: Final = {
    "malformed_json": "the line is no JSON object",
    "malformed_record": "the record's bytes do not fit its headers",
    "wrong_type": "a value has another type than its column",
    "undecodable_text": "a string is not valid UTF-8, or holds a lone surrogate",
    "null_id": "the row has no id",
    "null_text": "the row has no text",
    "empty_text": "the text is empty, or nothing but white space and marks of zero width",
    "nul_byte": "the text or the id holds a NUL character, which ends a string in many tools",
    "negative_tokens": "the row states fewer tokens than none",
    "too_many_tokens": "the row states more tokens than any text has: 2**31 or more",
    "too_large": "the text has more bytes than `max_text_bytes`, or its line or record more than any may have",
    "duplicate_id": "an earlier row of the crawl has the same id",
    "language": "the language is not among `languages`",
    "language_score": "the language score is missing or below `min_language_score`",
    "too_short": "the text has fewer characters than `min_chars`",
    "too_long": "the text has more characters than `max_chars`",
}


#: Codes of languages, names of fields; a URL or a sentence is none.
_WORD: Final = re.compile(r"[A-Za-z0-9_-]{0,35}")

#: No text has so many; far larger numbers have no sum.
MOST_TOKENS: Final = 2**31 - 1

#: Characters that nobody sees: what ``str.isspace`` takes for white space, the soft hyphen, marks of zero width and of
#: direction, letters and Braille cells that are empty, variation selectors, tags, and the mark of byte order.
BLANK: Final = "".join(
    [
        *filter(str.isspace, map(chr, range(0x3001))),
        *map(chr, (0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0)),
        *map(chr, (*range(0xE0000, 0xE0080), *range(0xE0100, 0xE01F0))),
        *map(chr, (0x180E, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2065))),
        *map(chr, (*range(0x2066, 0x2070), *range(0xFE00, 0xFE10), 0xFEFF, *range(0xFFF9, 0xFFFC))),
    ]
)
#: First bytes of them in UTF-8, and of others.
BEGINS_BLANK: Final = np.isin(np.arange(256), [character.encode()[0] for character in BLANK])


class RowFilters(Settings):
    """The filters; every one is off unless it is set."""

    languages: tuple[str, ...] = pydantic.Field(
        (), description="Keep only documents of these languages, as the crawl states them; empty keeps all."
    )
    min_language_score: float = pydantic.Field(
        0.0, ge=0.0, le=1.0, description="Keep only documents whose language score is at least this."
    )
    min_chars: int = pydantic.Field(
        0, ge=0, description="Keep only texts with at least this many characters."
    )
    max_chars: int | None = pydantic.Field(
        None, ge=1, description="Keep only texts with at most this many characters; null keeps all."
    )
    max_text_bytes: int = pydantic.Field(
        8_000_000,
        ge=1,
        description="Larger texts are rejected as `too_large`, so that no row can exhaust memory.",
    )

    @pydantic.model_validator(mode="after")
    def _some_length_is_kept(self) -> Self:
        if self.max_chars is not None and self.min_chars > self.max_chars:
            raise ValueError(
                f"min_chars {self.min_chars} is above max_chars {self.max_chars}, so that no text would be kept"
            )
        return self


def rejection(
    filters: RowFilters,
    identifier: str | None,
    text: str | None,
    language: str | None,
    language_score: float | None,
    token_count: int | None = None,
) -> tuple[str, str] | None:
    """Why a row is rejected.

    Returns:
        (reason, detail), the reason a key of ``REASONS``; ``None`` for a document.
    """
    if not identifier:
        return "null_id", f"field id, value {identifier!r}"
    if text is None:
        return "null_text", "field text, value None"
    if not text.strip(BLANK):
        return "empty_text", f"field text, {len(text)} characters that nobody sees"
    for field, value in (("id", identifier), ("text", text)):
        if (place := value.find("\0")) >= 0:
            return "nul_byte", f"field {field}, character {place}"
    if token_count is not None and token_count < 0:
        return "negative_tokens", f"field token_count, value {token_count}"
    if token_count is not None and token_count > MOST_TOKENS:
        return "too_many_tokens", f"field token_count, value {token_count}"
    if len(text) * 4 > filters.max_text_bytes and (size := len(text.encode())) > filters.max_text_bytes:
        return "too_large", f"field text, {size} bytes"
    if filters.languages and language not in filters.languages:
        return "language", f"field language, value {None if language is None else word_or_length(language)}"
    if filters.min_language_score > 0 and not (
        language_score is not None and language_score >= filters.min_language_score
    ):
        return "language_score", f"field language_score, value {language_score!r}"
    if len(text) < filters.min_chars:
        return "too_short", f"field text, {len(text)} characters"
    if filters.max_chars is not None and len(text) > filters.max_chars:
        return "too_long", f"field text, {len(text)} characters"
    return None


def word_or_length(value: str) -> str:
    """A code or name as it is; of any other string how long it is, as rejected rows outlive a document's withdrawal."""
    return repr(value) if _WORD.fullmatch(value) else f"of {len(value)} characters"


def rows_to_check(filters: RowFilters, documents: pa.RecordBatch) -> list[int]:
    """Rows that ``rejection`` may reject: a look at whole columns, as nearly every row passes.

    Every row it leaves out would pass; the reason of the others is for ``rejection`` to say.
    """
    identifier, text = documents.column("id"), documents.column("text")
    edges, data = string_bytes(text)
    sizes = np.diff(edges)
    doubted = are_null(identifier) | (np.diff(string_bytes(identifier)[0]) == 0) | are_null(text)
    doubted |= _may_be_blank(edges, data) | (sizes > filters.max_text_bytes)
    doubted |= _have_nul(identifier) | _have_nul(text)
    tokens = documents.column("token_count")
    counts = values_of(tokens, np.int64)
    doubted |= ~are_null(tokens) & ((counts < 0) | (counts > MOST_TOKENS))
    if filters.min_chars > 0:
        doubted |= _are_shorter(edges, data, filters.min_chars)
    if filters.max_chars is not None:
        # A text has no more characters than bytes.
        doubted |= sizes > filters.max_chars
    if filters.languages:
        doubted |= ~_are_among(documents.column("language"), filters.languages)
    if filters.min_language_score > 0:
        score = documents.column("language_score")
        # Written as "not at least", so that NaN is doubted.
        doubted |= are_null(score) | ~(values_of(score, np.float64) >= filters.min_language_score)
    rows: list[int] = np.flatnonzero(doubted).tolist()
    return rows


def _may_be_blank(edges: NDArray[np.int64], data: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Texts that may be nothing that anybody sees, by their first byte and their last."""
    doubted = np.ones(len(edges) - 1, np.bool_)
    filled = np.flatnonzero(np.diff(edges))
    last = data[edges[1:][filled] - 1]
    doubted[filled] = BEGINS_BLANK[data[edges[:-1][filled]]] & ((last <= 32) | (last >= 128))
    return doubted


def _are_shorter(edges: NDArray[np.int64], data: NDArray[np.uint8], min_chars: int) -> NDArray[np.bool_]:
    """Texts of fewer characters; only those whose bytes leave it open are decoded."""
    sizes = np.diff(edges)
    shorter: NDArray[np.bool_] = sizes < min_chars
    for row in np.flatnonzero(~shorter & (sizes < 4 * min_chars)).tolist():
        raw = data[edges[row] : edges[row + 1]].tobytes()
        shorter[row] = not raw.isascii() and len(raw.decode("utf-8", "replace")) < min_chars
    return shorter


def _are_among(strings: pa.StringArray, words: Sequence[str]) -> NDArray[np.bool_]:
    """Strings that are one of the words; null is none."""
    edges, data = string_bytes(strings)
    sizes = np.diff(edges)
    found = np.zeros(len(strings), np.bool_)
    for word in words:
        raw = np.frombuffer(word.encode(), np.uint8)
        rows = np.flatnonzero(sizes == len(raw))
        places = edges[rows][:, None] + np.arange(len(raw))
        found[rows] |= (data[places] == raw).all(axis=1)
    among: NDArray[np.bool_] = found & ~are_null(strings)
    return among


def _have_nul(strings: pa.StringArray) -> NDArray[np.bool_]:
    """Strings that hold a NUL character; one look at the bytes of all strings tells that none does."""
    edges, data = string_bytes(strings)
    found = np.zeros(len(strings), np.bool_)
    if not data.all():
        found[np.searchsorted(edges, np.flatnonzero(data == 0), side="right") - 1] = True
    return found


def invalid_utf8_rows(documents: pa.RecordBatch) -> dict[int, str]:
    """Rows of which a string is not valid UTF-8, with the first such column; Parquet readers do not check."""
    found: dict[int, str] = {}
    for name, column in zip(documents.schema.names, documents.columns, strict=True):
        if not _is_valid(column):
            for row, value in enumerate(column):
                if not _decodes(value):
                    found.setdefault(row, name)
    return found


def _is_valid(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _decodes(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    except (ValueError, OverflowError):
        # A date or time that Python cannot hold says nothing of the strings beside it.
        return True
    return True
