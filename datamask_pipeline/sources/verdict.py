"""Whether a row becomes a document. Knows one row at a time: no file, no other row, no storage.

What makes a row unfit is always rejected; the filters reject only what their settings name.
"""

import functools
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pydantic

from datamask_pipeline.settings import Settings

#: Every reason a rejected row can carry, and what it says.
REASONS: Final = {
    "malformed_json": "the line is no JSON object",
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
    size, length = pc.binary_length(text), pc.utf8_length(text)
    doubts = [
        pc.is_null(identifier),
        pc.equal(identifier, ""),
        pc.match_substring(identifier, "\0"),
        pc.is_null(text),
        pc.equal(size, 0),
        pc.utf8_is_space(text),
        pc.match_substring(text, "\0"),
        pc.greater(size, rules.max_text_bytes),
        pc.less(length, rules.min_chars),
    ]
    if rules.max_chars is not None:
        doubts.append(pc.greater(length, rules.max_chars))
    if rules.languages:
        known = pa.array(rules.languages, pa.string())
        doubts.append(pc.invert(pc.is_in(documents.column("language"), value_set=known)))
    if rules.min_language_score > 0:
        # Written as "not at least", so that NaN and null are doubted.
        enough = pc.greater_equal(documents.column("language_score"), rules.min_language_score)
        doubts.append(pc.invert(pc.fill_null(enough, False)))
    doubted = functools.reduce(pc.or_, (pc.fill_null(doubt, False) for doubt in doubts))
    rows: list[int] = pc.indices_nonzero(doubted).to_pylist()
    return rows


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
