"""A trigram model with Witten-Bell smoothing: token counts in, bits of every token out. Knows no text and no arm.

Witten and Bell's weights need no counts of counts, so a text in which nothing stands once, such as one document twenty
times, has a model too; Kneser-Ney's discounts are not defined there.

Shape suffixes: T tokens, D texts (and the end of the last, where they are offsets), V entries of the vocabulary,
K different n-grams, H different contexts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.errors import ConfigurationError, InputError

Integers = NDArray[np.int64]
Numbers = NDArray[np.float64]

#: Three tokens are packed into one integer of 63 bits.
TOKEN_BITS: Final = 21


@dataclass(frozen=True)
class Texts:
    """Texts as tokens, one after the other.

    Attributes:
        tokens_T: The tokens of all texts.
        offsets_D: Where each text begins and, last, the number of tokens.
    """

    tokens_T: Integers
    offsets_D: Integers

    @classmethod
    def of(cls, texts: Sequence[Sequence[int] | NDArray[Any]]) -> Self:
        """Texts out of a list of each one's tokens."""
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        parts = [np.asarray(text, np.int64) for text in texts]
        tokens_T = np.concatenate(parts) if parts else np.empty(0, np.int64)
        return cls(tokens_T, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))

    def cut(self, num_tokens: int) -> "Texts":
        """The first tokens of all; the text in which they end is cut."""
        whole = int(np.searchsorted(self.offsets_D, num_tokens, side="left"))
        ends_D = np.minimum(self.offsets_D[: whole + 1], num_tokens)
        return Texts(self.tokens_T[: ends_D[-1]], ends_D)

    def packed(self, before: int) -> Integers:
        """Every token with the two before it as one integer each; ``before`` stands twice before each text."""
        starts_D, lengths_D = self.offsets_D[:-1], np.diff(self.offsets_D)
        one_T = np.empty_like(self.tokens_T)
        one_T[1:] = self.tokens_T[:-1]
        one_T[starts_D[lengths_D > 0]] = before
        two_T = np.empty_like(one_T)
        two_T[1:] = one_T[:-1]
        two_T[starts_D[lengths_D > 0]] = before
        return (two_T << 2 * TOKEN_BITS) | (one_T << TOKEN_BITS) | self.tokens_T


@dataclass(frozen=True)
class Asked:
    """Texts made ready to be asked of several models: each different trigram once, in ascending order.

    Attributes:
        keys_K: The different trigrams that are scored.
        key_T: Which of them each scored token ends.
        text_T: The text of each scored token.
        num_texts: How many texts there are.
    """

    keys_K: Integers
    key_T: Integers
    text_T: Integers
    num_texts: int

    @classmethod
    def of(cls, texts: Texts, before: int, scored_T: NDArray[np.bool_] | None = None) -> Self:
        """Args: the texts, the token before each, and which of their tokens are scored; by default all."""
        lengths_D = np.diff(texts.offsets_D)
        text_T = np.repeat(np.arange(len(lengths_D)), lengths_D)
        packed_T = texts.packed(before)
        if scored_T is not None:
            packed_T, text_T = packed_T[scored_T], text_T[scored_T]
        keys_K, key_T = np.unique(packed_T, return_inverse=True)
        return cls(keys_K, key_T, text_T, len(lengths_D))


@dataclass(frozen=True)
class _Order:
    """The n-grams of one order: what followed which context how often, all by ascending packed key."""

    keys_K: Integers
    counts_K: Integers
    contexts_H: Integers
    totals_H: Integers
    types_H: Integers

    @classmethod
    def of(cls, keys_K: Integers, counts_K: Integers) -> Self:
        """Args: the n-grams in ascending order, and how often each stands in the text."""
        contexts_K = keys_K >> TOKEN_BITS
        first_H = np.flatnonzero(np.diff(contexts_K, prepend=-1))
        totals_H = np.add.reduceat(counts_K, first_H)
        types_H = np.diff(first_H, append=len(keys_K))
        return cls(keys_K, counts_K, contexts_K[first_H], totals_H, types_H)

    def probabilities(self, keys_T: Integers, lower_T: Numbers) -> Numbers:
        """Of each n-gram, given that of the next lower order: unchanged where its context was never seen."""
        counts_T = _found(self.keys_K, self.counts_K, keys_T)
        contexts_T = keys_T >> TOKEN_BITS
        totals_T = _found(self.contexts_H, self.totals_H, contexts_T)
        types_T = _found(self.contexts_H, self.types_H, contexts_T)
        seen_T = totals_T > 0
        mixed_T = (counts_T + types_T * lower_T) / np.maximum(totals_T + types_T, 1)
        return np.where(seen_T, mixed_T, lower_T)


class TrigramModel:
    """Probabilities of each next token given the two before it.

    Formula:
        p(w | h) = (c(h w) + t(h) p(w | h')) / (c(h) + t(h)); h' is h without its first token, c counts occurrences, t
        different tokens seen after h. Below the single tokens stands 1 / vocabulary. Where h was never seen: p(w | h').

    Source: Witten and Bell, 1991, method C, interpolated as in Chen and Goodman, 1999.

    Cost: two sorts of the tokens. Of text, about 35 bytes a token while counting, and 24 a different trigram afterwards;
    where nearly every trigram is new, 105 and 56.

    Args:
        texts: What the model learns from.
        vocabulary: Different tokens there can be: every token is below.
        before: The token that stands before each text, such as the end of the text before it.

    Raises:
        ConfigurationError: the vocabulary is larger than three tokens in 63 bits allow.
        InputError: there is no token.
    """

    def __init__(self, texts: Texts, *, vocabulary: int, before: int) -> None:
        if vocabulary > 2**TOKEN_BITS:
            raise ConfigurationError(
                f"an n-gram model takes a vocabulary of at most {2**TOKEN_BITS:,} tokens, not {vocabulary:,}"
            )
        if not len(texts.tokens_T):
            raise InputError("an n-gram model needs a text", remedy="raise the selection's ratio or budget")
        self.vocabulary, self.before = vocabulary, before
        self.num_tokens = len(texts.tokens_T)
        trigrams_K, counts_K = np.unique(texts.packed(before), return_counts=True)
        self._three = _Order.of(trigrams_K, counts_K)
        bigrams_K = trigrams_K & ((1 << 2 * TOKEN_BITS) - 1)
        order_K = np.argsort(bigrams_K, kind="stable")
        first = np.flatnonzero(np.diff(bigrams_K[order_K], prepend=-1))
        self._two = _Order.of(bigrams_K[order_K][first], np.add.reduceat(counts_K[order_K], first))
        counts_V = np.bincount(texts.tokens_T, minlength=vocabulary)
        types = int(np.count_nonzero(counts_V))
        self._one_V: Numbers = (counts_V + types / vocabulary) / (self.num_tokens + types)

    @property
    def num_trigrams(self) -> int:
        """Different trigrams that were seen."""
        return len(self._three.keys_K)

    def bits(self, asked: Asked) -> Numbers:
        """-log2 p of each text, over its scored tokens; shape (number of texts,)."""
        bits_K = -np.log2(self._probabilities(asked.keys_K))
        return np.bincount(asked.text_T, bits_K[asked.key_T], minlength=asked.num_texts).astype(np.float64)

    def _probabilities(self, packed_T: Integers) -> Numbers:
        one_T = self._one_V[packed_T & ((1 << TOKEN_BITS) - 1)]
        two_T = self._two.probabilities(packed_T & ((1 << 2 * TOKEN_BITS) - 1), one_T)
        return self._three.probabilities(packed_T, two_T)


def _found(keys_K: Integers, values_K: Integers, wanted_T: Integers) -> Integers:
    """The value of each wanted key; 0 where there is none."""
    place_T = np.minimum(np.searchsorted(keys_K, wanted_T), len(keys_K) - 1)
    return np.where(keys_K[place_T] == wanted_T, values_K[place_T], 0)
