"""When two texts are the same, and why a row is rejected."""

import pyarrow as pa
import pytest

from datamask_pipeline.schema import FINEWEB
from datamask_pipeline.sources.content import content_hash, normal_form
from datamask_pipeline.sources.verdict import REASONS, RowRules, invalid_utf8_rows, rows_to_judge, verdict


def test_white_space_and_composition_do_not_make_a_text_new() -> None:
    assert normal_form(b"  a\r\n b\t\tc ") == b"abc"
    assert normal_form("a\u00a0b".encode()) == "a\u00a0b".encode()
    assert content_hash("cafe\u0301  au lait\n") == content_hash("café au lait")
    assert content_hash("Café") != content_hash("café")


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
    found = verdict(RowRules(**rules), *values)
    assert (found and found[0]) == reason
    names = ("id", "text", "language", "language_score")
    row = pa.RecordBatch.from_pylist([dict(zip(names, values, strict=True))], schema=FINEWEB)
    assert reason is None or rows_to_judge(RowRules(**rules), row) == [0]
    assert reason is None or reason in REASONS


def test_invalid_utf8_is_found_row_by_row() -> None:
    raw = pa.array([b"fine", b"\xff\xfe", None, "ü".encode()], pa.binary())
    strings = pa.StringArray.from_buffers(4, raw.buffers()[1], raw.buffers()[2], raw.buffers()[0])
    batch = pa.RecordBatch.from_arrays([strings, pa.array([1, 2, 3, 4])], ["text", "n"])
    assert invalid_utf8_rows(batch, ["text", "n"]) == {1: "text"}
