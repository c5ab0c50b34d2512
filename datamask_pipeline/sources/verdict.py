"""Whether a row becomes a document. Knows one row at a time: no file, no other row, no storage.

What makes a row unfit is always rejected; the filters reject only what their settings name.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pydantic
from numpy.typing import NDArray

from datamask_pipeline.settings import Settings
from datamask_pipeline.sources.arrays import are_null, string_array, string_bytes, values_of

#: Every reason a rejected row can carry, and what it says.
REASONS: Final = {
    "malformed_json": "the line is no JSON object",
    "malformed_record": "the record's bytes do not fit its headers",
    "wrong_type": "a value has another type than its column",
    "undecodable_text": "a string is not valid UTF-8, or holds a lone surrogate",
    "null_id": "the row has no id",
    "null_text": "the row has no text",
    "empty_text": "the text is empty or white space",
    "nul_byte": "the text or the id holds a NUL character, which ends a string in many tools",
    "too_large": "the text has more bytes than `max_text_bytes`",
    "duplicate_id": "an earlier row of the crawl has the same id",
    "language": "the language is not among `languages`",
    "language_score": "the language score is missing or below `min_language_score`",
    "too_short": "the text has fewer characters than `min_chars`",
    "too_long": "the text has more characters than `max_chars`",
}


class RowRules(Settings):
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


def verdict(
    rules: RowRules,
    identifier: str | None,
    text: str | None,
    language: str | None,
    language_score: float | None,
) -> tuple[str, str] | None:
    """Why a row is rejected.

    Returns:
        (reason, detail), the reason a key of ``REASONS``; ``None`` for a document.
    """
    if not identifier:
        return "null_id", f"field id, value {identifier!r}"
    if text is None:
        return "null_text", "field text, value None"
    if not text or text.isspace():
        return "empty_text", f"field text, {len(text)} characters of white space"
    if "\0" in text or "\0" in identifier:
        return "nul_byte", f"field text, character {text.find(chr(0))}"
    if len(text) * 4 > rules.max_text_bytes and (size := len(text.encode())) > rules.max_text_bytes:
        return "too_large", f"field text, {size} bytes"
    if rules.languages and language not in rules.languages:
        return "language", f"field language, value {language!r}"
    if rules.min_language_score > 0 and not (
        language_score is not None and language_score >= rules.min_language_score
    ):
        return "language_score", f"field language_score, value {language_score!r}"
    if len(text) < rules.min_chars:
        return "too_short", f"field text, {len(text)} characters"
    if rules.max_chars is not None and len(text) > rules.max_chars:
        return "too_long", f"field text, {len(text)} characters"
    return None


def rows_to_judge(rules: RowRules, documents: pa.RecordBatch) -> list[int]:
    """Rows that ``verdict`` may reject: a screen over whole columns, for nearly every row passes.

    Every row it leaves out would pass; the reason of the others is for ``verdict`` to say.
    """
    identifier, text = documents.column("id"), documents.column("text")
    sizes = np.diff(string_bytes(text)[0])
    doubted = are_null(identifier) | (np.diff(string_bytes(identifier)[0]) == 0) | are_null(text)
    doubted |= _are_space(text, sizes) | (sizes > rules.max_text_bytes)
    doubted |= _have_nul(identifier) | _have_nul(text)
    if rules.min_chars > 0:
        doubted |= values_of(pc.utf8_length(text), np.int32) < rules.min_chars
    if rules.max_chars is not None:
        # A text has no more characters than bytes.
        doubted |= sizes > rules.max_chars
    if rules.languages:
        known = pc.is_in(documents.column("language"), value_set=string_array(rules.languages))
        doubted |= values_of(known.cast(pa.uint8()), np.uint8) == 0
    if rules.min_language_score > 0:
        score = documents.column("language_score")
        # Written as "not at least", so that NaN is doubted.
        doubted |= are_null(score) | ~(values_of(score, np.float64) >= rules.min_language_score)
    rows: list[int] = np.flatnonzero(doubted).tolist()
    return rows


def _are_space(text: pa.StringArray, sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Texts of nothing but white space, and empty ones."""
    space: NDArray[np.bool_] = values_of(pc.utf8_is_space(text).cast(pa.uint8()), np.bool_)
    either: NDArray[np.bool_] = space | (sizes == 0)
    return either


def _have_nul(strings: pa.StringArray) -> NDArray[np.bool_]:
    """Strings that hold a NUL character; one look at the bytes of all strings tells that none does."""
    edges, data = string_bytes(strings)
    found = np.zeros(len(strings), np.bool_)
    if not data.all():
        found[np.searchsorted(edges, np.flatnonzero(data == 0), side="right") - 1] = True
    return found


def invalid_utf8_rows(documents: pa.RecordBatch, names: Sequence[str]) -> dict[int, str]:
    """Rows of which a string is not valid UTF-8, with the first such column; Parquet readers do not check."""
    found: dict[int, str] = {}
    for name in names:
        column = documents.column(name)
        if column.type != pa.string() or _is_valid(column):
            continue
        for row, value in enumerate(column.cast(pa.binary())):
            if not _decodes(value.as_py()):
                found.setdefault(row, name)
    return found


def _is_valid(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _decodes(value: bytes | None) -> bool:
    try:
        (value or b"").decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
