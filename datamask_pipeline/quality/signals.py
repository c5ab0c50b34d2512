"""Counts over a text that the web-filtering literature judges by. Knows no threshold and no score.

Sources: Gopher (Rae et al. 2021, appendix A1), C4 (Raffel et al. 2020, section 2.2), FineWeb (Penedo et al.
2024, section 3.5).
"""

import re
from collections import Counter
from collections.abc import Sequence

BULLETS = ("•", "‣", "▪", "-", "*", "·", "●")
STOP_WORDS = frozenset({"the", "be", "to", "of", "and", "that", "have", "with"})
TERMINAL = (".", "!", "?", '"', "'", "”", "。", "！", "？")
SHORT_LINE_CHARS = 30

_PARAGRAPH_BREAK = re.compile(r"\n{2,}")


def signals(text: str) -> dict[str, float]:
    """Every signal of one text, by name; a fraction is in 0..1, but for signs, of which a word may have several, and for
    the commonest n-gram, which overlaps itself and counts twice there.
    """
    words = text.split()
    lines = [line for line in text.splitlines() if line.strip()]
    paragraphs = [part for part in _PARAGRAPH_BREAK.split(text.strip()) if part.strip()]
    found = {
        "num_words": float(len(words)),
        "mean_word_chars": _ratio(sum(map(len, words)), len(words)),
        "symbol_fraction": _ratio(text.count("#") + text.count("...") + text.count("…"), len(words)),
        "alphabetic_fraction": _ratio(sum(any(map(str.isalpha, word)) for word in words), len(words)),
        "num_stop_words": float(len(STOP_WORDS.intersection(word.lower() for word in words))),
        "bullet_line_fraction": _ratio(sum(line.lstrip().startswith(BULLETS) for line in lines), len(lines)),
        "ellipsis_line_fraction": _ratio(
            sum(line.rstrip().endswith(("...", "…")) for line in lines), len(lines)
        ),
        "unpunctuated_line_fraction": 1.0
        - _ratio(sum(line.rstrip().endswith(TERMINAL) for line in lines), len(lines)),
        "short_line_fraction": _ratio(sum(len(line) <= SHORT_LINE_CHARS for line in lines), len(lines)),
        "newline_fraction": _ratio(len(lines), len(words)),
        "brace_fraction": _ratio(text.count("{") + text.count("}"), len(words)),
        "placeholder": float("lorem ipsum" in text.lower()),
    }
    for name, pieces in (("line", lines), ("paragraph", paragraphs)):
        repeated = _repeats(pieces)
        found[f"duplicate_{name}_fraction"] = _ratio(len(repeated), len(pieces))
        found[f"duplicate_{name}_char_fraction"] = _ratio(sum(map(len, repeated)), sum(map(len, pieces)))
    for size in (2, 3, 4):
        found[f"top_{size}_gram_char_fraction"] = _top_ngram(words, size)
    for size in (5, 10):
        found[f"duplicate_{size}_gram_char_fraction"] = _duplicate_ngrams(words, size)
    return found


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _repeats(pieces: Sequence[str]) -> list[str]:
    """Every piece after its first occurrence."""
    seen: set[str] = set()
    repeated = []
    for piece in pieces:
        if piece in seen:
            repeated.append(piece)
        seen.add(piece)
    return repeated


def _top_ngram(words: Sequence[str], size: int) -> float:
    """Share of the words' characters that lie in the commonest n-gram; 0 if none occurs twice."""
    grams = Counter(zip(*(words[start:] for start in range(size)), strict=False))
    if not grams:
        return 0.0
    gram, number = max(grams.items(), key=lambda item: (item[1], item[0]))
    return _ratio(number * sum(map(len, gram)), sum(map(len, words))) if number > 1 else 0.0


def _duplicate_ngrams(words: Sequence[str], size: int) -> float:
    """Share of the words' characters that lie in n-grams which occurred before; overlaps count once."""
    seen: set[tuple[str, ...]] = set()
    covered_until = 0
    spans: list[tuple[int, int]] = []
    for start, gram in enumerate(zip(*(words[offset:] for offset in range(size)), strict=False)):
        if gram in seen:
            spans.append((max(start, covered_until), start + size))
            covered_until = start + size
        seen.add(gram)
    lengths = [0]
    for word in words:
        lengths.append(lengths[-1] + len(word))
    return _ratio(sum(lengths[stop] - lengths[start] for start, stop in spans), lengths[-1])
