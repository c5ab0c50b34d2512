"""The rules of Gopher, C4 and FineWeb as one graded score. Knows thresholds; no model and no embedding.

Formula: the mean over the rules of a membership in 0..1 that is 0.5 at the rule's published threshold and
changes linearly in the signal (in its logarithm for the number of words) up to 1 at the value that cannot be
improved on, and down to 0 as far on the other side. So a text that passes every filter of the literature has
every membership at 0.5 or above, and texts on either side of a filter are still ordered.

Source: the papers named in ``signals``; thresholds as their filters state them. Direction: higher is better.
Cost: one pass over the text in plain Python.
"""

import math
from typing import Final

import numpy as np

from datamask_pipeline.quality.base import ScoreBatch, Scorer, Scores
from datamask_pipeline.quality.signals import signals
from datamask_pipeline.settings import Settings

#: signal -> (threshold, best value). Where the best value is 0, the filter's threshold is an upper bound.
RULES: Final[dict[str, tuple[float, float]]] = {
    # Gopher, document quality
    "mean_word_chars_low": (3.0, 4.5),
    "mean_word_chars_high": (10.0, 6.0),
    "symbol_fraction": (0.10, 0.0),
    "bullet_line_fraction": (0.90, 0.0),
    "ellipsis_line_fraction": (0.30, 0.0),
    "alphabetic_fraction": (0.80, 1.0),
    "num_stop_words": (2.0, 6.0),
    # Gopher, repetition
    "duplicate_line_fraction": (0.30, 0.0),
    "duplicate_paragraph_fraction": (0.30, 0.0),
    "duplicate_line_char_fraction": (0.20, 0.0),
    "duplicate_paragraph_char_fraction": (0.20, 0.0),
    "top_2_gram_char_fraction": (0.20, 0.0),
    "top_3_gram_char_fraction": (0.18, 0.0),
    "top_4_gram_char_fraction": (0.16, 0.0),
    "duplicate_5_gram_char_fraction": (0.15, 0.0),
    "duplicate_10_gram_char_fraction": (0.10, 0.0),
    # FineWeb
    "unpunctuated_line_fraction": (0.88, 0.0),
    "short_line_fraction": (0.67, 0.0),
    "newline_fraction": (0.30, 0.0),
    # C4 drops a page with a brace or a placeholder; one brace in twenty words stands for source code.
    "brace_fraction": (0.05, 0.0),
    "placeholder": (0.5, 0.0),
}

#: Gopher's fewest words, and the number from which more words say nothing about quality.
NUM_WORDS: Final = (50.0, 200.0)


class RulesConfig(Settings):
    """Nothing to set: the thresholds are the literature's."""


class RulesScorer(Scorer):
    """Rule-based quality in 0..1."""

    name = "rules"
    Config = RulesConfig
    scale = (0.0, 1.0)
    model = "gopher-c4-fineweb-rules"
    revision = "1"

    def __init__(self, config: RulesConfig) -> None:
        self.config = config

    def score(self, batch: ScoreBatch) -> Scores:
        return Scores(np.array([rule_score(text) for text in batch.texts()], dtype=np.float64))


def rule_score(text: str) -> float:
    """Mean membership of one text over all rules, in 0..1."""
    return float(np.mean(list(memberships(text).values())))


def memberships(text: str) -> dict[str, float]:
    """How well a text keeps each rule: 1 is ideal, 0.5 stands at the threshold."""
    found = signals(text)
    found["mean_word_chars_low"] = found["mean_word_chars_high"] = found["mean_word_chars"]
    kept = {name: _membership(found[name], *bounds) for name, bounds in RULES.items()}
    low, high = map(math.log, NUM_WORDS)
    kept["num_words"] = _membership(math.log(max(found["num_words"], 1.0)), low, high)
    return kept


def _membership(value: float, threshold: float, best: float) -> float:
    return min(1.0, max(0.0, 0.5 + 0.5 * (value - threshold) / (best - threshold)))


SCORER = RulesScorer
