"""When two texts are the same, and why a row is rejected."""

import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamask_pipeline.schema import FINEWEB
from datamask_pipeline.sources import content
from datamask_pipeline.sources.content import content_hash, content_hashes, normal_form
from datamask_pipeline.sources.filters import REASONS, RowFilters, invalid_utf8_rows, rejection, rows_to_check


def test_white_space_and_composition_do_not_make_a_text_new() -> None:
    assert normal_form(b"  a\r\n b\t\tc ") == b"abc"
    assert normal_form("a\u00a0b".encode()) == "a\u00a0b".encode()
    assert content_hash("cafe\u0301  au lait\n") == content_hash("café au lait")
    assert content_hash("Café") != content_hash("café")


ANY_TEXT = st.one_of(
    st.text(max_size=30), st.text("ab \t\n\r\v\f\0é\u0301ñ\u2019\u2000\u1161가\u212b😀", max_size=30)
)


@settings(max_examples=400)
@given(texts=st.lists(ANY_TEXT, max_size=12), chunk=st.integers(1, 40), cut=st.integers(0, 4))
def test_a_columns_hashes_are_those_of_its_texts(texts: list[str], chunk: int, cut: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(content, "CHUNK_BYTES", chunk)
        found = content_hashes(pa.array(texts, pa.string()).slice(cut))
    assert found.to_pylist() == [content_hash(text) for text in texts[cut:]]


@pytest.mark.slow
def test_every_character_that_composition_may_change_is_doubted() -> None:
    """Held against the decompositions themselves: an inert character is no mark, no part and has no parts."""
    parts = {
        part
        for code in range(0x110000)
        if (form := unicodedata.decomposition(chr(code))) and not form.startswith("<")
        for part in form.split()[1:]
    }
    for code in [*range(0x80, 0xD800), *range(0xE000, 0x30000)]:
        text = chr(code)
        raw = np.frombuffer(text.encode(), np.uint8)
        doubted = raw[0] >= 0xCC and len(content._may_compose(raw, np.array([0]))) == 1
        jamo = 0x1161 <= code <= 0x11FF
        may_change = unicodedata.combining(text) or not unicodedata.is_normalized("NFC", text)
        assert doubted or not (may_change or jamo or f"{code:04X}" in parts), hex(code)


@pytest.mark.slow
@settings(max_examples=400)
@given(
    rows=st.lists(
        st.tuples(
            st.one_of(st.none(), st.text(max_size=3)),
            st.one_of(st.none(), ANY_TEXT, st.text(" \n\u00a0\u2003", max_size=3)),
            st.sampled_from([None, "en", "de", ""]),
            st.sampled_from([None, 0.2, 0.5, 0.9, float("nan")]),
        ),
        max_size=8,
    ),
    rules=st.fixed_dictionaries(
        {},
        optional={
            "languages": st.just(("en",)),
            "min_language_score": st.just(0.5),
            "min_chars": st.integers(0, 9),
            "max_chars": st.integers(1, 9),
            "max_text_bytes": st.integers(1, 20),
        },
    ).filter(lambda rules: rules.get("min_chars", 1) <= rules.get("max_chars", 9)),
    cut=st.integers(0, 3),
)
def test_no_row_that_a_rule_rejects_is_left_out(
    rows: list[tuple[str | None, str | None, str | None, float | None]], rules: dict[str, object], cut: int
) -> None:
    names = ("id", "text", "language", "language_score")
    entries = [dict(zip(names, row, strict=True)) for row in rows]
    batch = pa.RecordBatch.from_pylist(entries, schema=FINEWEB).slice(cut)
    judged = set(rows_to_check(RowFilters(**rules), batch))
    rejected = {n for n, row in enumerate(rows[cut:]) if rejection(RowFilters(**rules), *row) is not None}
    assert rejected <= judged


def test_every_text_of_white_space_alone_is_judged() -> None:
    spaces = [chr(code) for code in range(0x3001) if chr(code).isspace()]
    rows = [{"id": "i", "text": text} for text in [*spaces, "".join(spaces)]]
    batch = pa.RecordBatch.from_pylist(rows, schema=FINEWEB)
    assert len(spaces) == 29
    assert rows_to_check(RowFilters(), batch) == list(range(len(rows)))


def test_a_text_that_nobody_sees_is_empty_and_one_with_marks_in_it_is_not() -> None:
    def judged(text: str) -> str | None:
        batch = pa.RecordBatch.from_pylist([{"id": "i", "text": text}], schema=FINEWEB)
        found = rejection(RowFilters(), "i", text, None, None)
        assert rows_to_check(RowFilters(), batch) == [0] or found is None
        return found and found[0]

    marks = ["\u00ad", "\u180e", "\u200b", "\u200d", "\u200f", "\u202e", "\u2060", "\u2069", "\ufe0f"]
    marks += [
        "\u034f",
        "\u061c",
        "\u115f",
        "\u17b4",
        "\u2800",
        "\u3164",
        "\uffa0",
        "\U000e0020",
        "\U000e0100",
    ]
    for text in (*marks, "".join(marks), " \u200b\n", "\ufeff\u3000"):
        assert judged(text) == "empty_text", ascii(text)
    for text in ("\ufeffa", "a\u200b", "\u200d.\u200d", "\ufe0f\uff21", "\u2028x"):
        assert judged(text) is None, ascii(text)


@pytest.mark.parametrize(
    ("rules", "values", "reason"),
    [
        ({}, ("i", "text", "en", 0.9), None),
        ({}, (None, "text", "en", 0.9), "null_id"),
        ({}, ("", "text", "en", 0.9), "null_id"),
        ({}, ("i", None, "en", 0.9), "null_text"),
        ({}, ("i", "", "en", 0.9), "empty_text"),
        ({}, ("i", " \n\u00a0", "en", 0.9), "empty_text"),
        ({}, ("i", "a\0b", "en", 0.9), "nul_byte"),
        ({}, ("i\0", "ab", "en", 0.9), "nul_byte"),
        ({"max_text_bytes": 5}, ("i", "ééé", "en", 0.9), "too_large"),
        ({"max_text_bytes": 6}, ("i", "ééé", "en", 0.9), None),
        ({"languages": ["en"]}, ("i", "text", "de", 0.9), "language"),
        ({"languages": ["en"]}, ("i", "text", None, 0.9), "language"),
        ({"languages": ["de", "en"]}, ("i", "text", "en", 0.9), None),
        ({"min_language_score": 0.5}, ("i", "text", "en", 0.4), "language_score"),
        ({"min_language_score": 0.5}, ("i", "text", "en", None), "language_score"),
        ({"min_language_score": 0.5}, ("i", "text", "en", float("nan")), "language_score"),
        ({"min_chars": 5}, ("i", "text", "en", 0.9), "too_short"),
        ({"max_chars": 3}, ("i", "text", "en", 0.9), "too_long"),
        ({}, ("i", "שלום 👋🏽 مرحبا", None, None), None),
    ],
)
def test_a_row_is_judged_by_the_first_rule_it_breaks(
    rules: dict[str, object], values: tuple[str, str, str, float], reason: str | None
) -> None:
    found = rejection(RowFilters(**rules), *values)
    assert (found and found[0]) == reason
    names = ("id", "text", "language", "language_score")
    row = pa.RecordBatch.from_pylist([dict(zip(names, values, strict=True))], schema=FINEWEB)
    assert reason is None or rows_to_check(RowFilters(**rules), row) == [0]
    assert reason is None or reason in REASONS


@pytest.mark.parametrize(
    ("name", "text", "detail"),
    [("i", "ab\0", "field text, character 2"), ("i\0", "a\0", "field id, character 1")],
)
def test_a_nul_byte_is_named_with_its_field(name: str, text: str, detail: str) -> None:
    assert rejection(RowFilters(), name, text, "en", 0.9) == ("nul_byte", detail)


@pytest.mark.parametrize(
    ("language", "told"), [("de", "value 'de'"), ("Jane Roe", "value of 8 characters"), (None, "value None")]
)
def test_a_language_that_is_no_code_is_not_told(language: str | None, told: str) -> None:
    found = rejection(RowFilters(languages=("en",)), "i", "text", language, None)
    assert found == ("language", f"field language, {told}")


def test_invalid_utf8_is_found_row_by_row() -> None:
    raw = pa.array([b"fine", b"\xff\xfe", None, "ü".encode()], pa.binary())
    strings = pa.StringArray.from_buffers(4, raw.buffers()[1], raw.buffers()[2], raw.buffers()[0])
    batch = pa.RecordBatch.from_arrays([strings, pa.array([1, 2, 3, 4])], ["text", "n"])
    assert invalid_utf8_rows(batch) == {1: "text"}
    inside = pa.StructArray.from_arrays([pa.array([1, 2, 3, 4]), strings], ["n", "word"])
    assert invalid_utf8_rows(pa.RecordBatch.from_arrays([inside], ["meta"])) == {1: "meta"}
    never = pa.array([2**62, 2, 2**62, 4], pa.timestamp("s"))
    beside = pa.StructArray.from_arrays([never, strings], ["when", "word"])
    assert invalid_utf8_rows(pa.RecordBatch.from_arrays([beside], ["meta"])) == {1: "meta"}
