"""The rules' score orders texts as the filters of the literature do."""

import math

import pytest

from datamask_pipeline.quality.rules import NUM_WORDS, RULES, memberships, rule_score
from datamask_pipeline.quality.signals import signals

PROSE = (
    "The river rises in the hills to the north, and it is fed by many small streams. In the spring, "
    "when the snow melts, the water can be high enough to flood the fields. People who live there have "
    "built their houses on posts, and they keep a boat with each of them.\n"
    "A traveller of the last century wrote that nobody in the valley seemed to mind. He was told that the "
    "flood brings good soil, that the fish follow it, and that children learn to swim before they walk.\n"
)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("num_words", "one two  three\nfour", 4),
        ("mean_word_chars", "ab abcd", 3),
        ("symbol_fraction", "# one two ... four…", 3 / 5),
        ("alphabetic_fraction", "a1 22 3b --", 0.5),
        ("num_stop_words", "The the of cats", 2),
        ("bullet_line_fraction", "- a\n* b\nc\n\nd", 0.5),
        ("ellipsis_line_fraction", "a...\nb\nc…\nd", 0.5),
        ("unpunctuated_line_fraction", "a.\nb\nc!\nd", 0.5),
        ("short_line_fraction", "x" * 30 + "\n" + "y" * 31, 0.5),
        ("newline_fraction", "a b\nc d", 0.5),
        ("brace_fraction", "a { b }", 0.5),
        ("placeholder", "Lorem Ipsum dolor", 1),
        ("duplicate_line_fraction", "a\nb\na\na", 0.5),
        ("duplicate_line_char_fraction", "aaaa\nbb\naaaa\ncc", 1 / 3),
        ("duplicate_paragraph_fraction", "a\n\nb\n\na\n\nc", 0.25),
        ("top_2_gram_char_fraction", "a b a b c d", 4 / 6),
        ("top_3_gram_char_fraction", "a b c d e f", 0.0),
        ("duplicate_5_gram_char_fraction", "a b c d e a b c d e", 0.5),
        ("duplicate_5_gram_char_fraction", "x x x x x x x x", 7 / 8),
    ],
)
def test_a_signal_counts_what_it_says(name: str, text: str, value: float) -> None:
    assert signals(text)[name] == pytest.approx(value)


def test_good_prose_passes_every_rule_and_rubbish_does_not() -> None:
    assert min(memberships(PROSE).values()) >= 0.5
    spam = "BUY NOW { } #1 #1 ...\n" * 40
    assert rule_score(PROSE) > 0.85 > 0.6 > rule_score(spam)
    assert min(memberships(spam).values()) < 0.5


def test_a_membership_is_one_half_at_its_threshold() -> None:
    fifty = " ".join(["word"] * int(NUM_WORDS[0]))
    assert memberships(fifty)["num_words"] == pytest.approx(0.5)
    half_dull = "a.\n" * 12 + "b\n" * 88
    assert memberships(half_dull)["unpunctuated_line_fraction"] == pytest.approx(0.5)


def test_every_score_is_in_its_scale() -> None:
    for text in ["x", "", " ", "{" * 1000, PROSE * 50, "👋🏽" * 9, "a\n" * 500]:
        assert 0.0 <= rule_score(text) <= 1.0
        assert all(math.isfinite(value) for value in signals(text).values())
    assert all(threshold != best for threshold, best in RULES.values())
