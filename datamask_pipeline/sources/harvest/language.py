"""A rule for "is this English prose", and a token count. Knows no document and no model.

Both are stated approximations for the embedded default; neither is FineWeb's own (fastText language
identification, GPT-2 tokens).
"""

import re
from typing import Final

#: The commonest function words of English; running English text holds them at 35-50 %.
FUNCTION_WORDS: Final = frozenset(
    {
        *("the", "of", "and", "to", "in", "a", "is", "that", "for", "it", "as", "was", "with", "be", "by"),
        *("on", "not", "this", "are", "or", "an", "at", "from", "which", "but", "have", "if", "can", "will"),
        *("has", "its", "when", "use", "used", "one", "all", "no", "should", "may", "any", "each", "other"),
        *("than", "then", "into", "only"),
    }
)

#: The share of function words from which the score is 1.
FULL_SHARE: Final = 0.30

#: Texts scoring lower are called ``und``, undetermined.
ENGLISH_FROM: Final = 0.5

_WORD = re.compile(r"[A-Za-z]+")
_PIECE = re.compile(r"\w+|[^\w\s]")


def english_score(text: str) -> float:
    """Share of English function words among the words, over ``FULL_SHARE``, at most 1."""
    words = _WORD.findall(text.lower())
    if not words:
        return 0.0
    share = sum(word in FUNCTION_WORDS for word in words) / len(words)
    return round(min(1.0, share / FULL_SHARE), 4)


def count_pieces(text: str) -> int:
    """Words and punctuation marks: below the count of a subword tokeniser, and in proportion to it."""
    return len(_PIECE.findall(text))
