"""Nothing in a stranger's text steers what shows it, and its meaning in JSON stays."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamask_pipeline.domains import registrable_domain
from datamask_pipeline.printable import code_span, inert, markdown_text

STEERING = "\x1b[31m\x9b\x07\x00\u202e\u2066\u2028\ud800\U000e0001\r\n\t"


def test_what_steers_is_shown_by_its_number() -> None:
    shown = inert(STEERING)
    assert shown.isascii()
    assert shown.isprintable()
    assert inert("\u00e9 \u65e5\u672c\u3000\u200dx") == "\u00e9 \u65e5\u672c\u3000\u200dx"
    assert inert("a\nb\x1b", keep="\n") == "a\nb\\u001b"


@given(st.text())
def test_in_json_it_means_the_same(text: str) -> None:
    written = json.dumps(text, ensure_ascii=False)
    assert json.loads(inert(written)) == text


@pytest.mark.parametrize(
    "text", ["`|<img src=x onerror=1>&", "[a](javascript:b)", "![a](b)", "**a**", STEERING]
)
def test_nothing_is_markdown_in_a_table(text: str) -> None:
    assert not set("`|<>&\n").intersection(code_span(text)[1:-1])
    assert not set("`|<>[]()!*_~\n").intersection(markdown_text(text))


@pytest.mark.parametrize(
    ("host", "registered"),
    [
        ("news.example.co.uk", "example.co.uk"),
        ("a.b.github.io", "b.github.io"),
        ("192.168.0.1", "192.168.0.1"),
        ("com", "com"),
        ("", ""),
        ("<img>.example", "<img>.example"),
    ],
)
def test_the_registrable_domain(host: str, registered: str) -> None:
    assert registrable_domain(host) == registered
