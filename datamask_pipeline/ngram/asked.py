"""What a trigram model is asked: held-out texts, and questions with their answers. Knows tokens; knows no arm and no file.

Shape suffixes: Q questions, C choices of all questions, D texts, T tokens.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.ngram.trigram import Asked, Integers, Numbers, Texts, TrigramModel

#: Tokens of each text.
Encode = Callable[[list[str]], list[list[int]]]

_TEXTS_AT_ONCE = 1_024
_CONTEXT = 2


class Question(Protocol):
    """What is scored of a question: prompt and answer of each choice, and which is right."""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Prompt and answer of each choice."""

    @property
    def gold(self) -> int:
        """Which of them is right."""


def encoded(texts: Iterable[str], encode: Encode, end: int) -> Iterator[NDArray[np.int64]]:
    """The tokens of each text, and the end of text after them."""
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == _TEXTS_AT_ONCE:
            yield from _ended(batch, encode, end)
            batch = []
    yield from _ended(batch, encode, end)


def _ended(batch: list[str], encode: Encode, end: int) -> Iterator[NDArray[np.int64]]:
    for ids in encode(batch):
        yield np.array([*ids, end], np.int64)


@dataclass(frozen=True)
class Answers:
    """What a model says of each question.

    Attributes:
        gold_bits_Q: -log2 likelihood of the right answer, given its prompt.
        gold_probability_Q: Its likelihood as a share of those of all choices; NaN for an open question.
    """

    gold_bits_Q: Numbers
    gold_probability_Q: Numbers


@dataclass(frozen=True)
class AskedQuestions:
    """Questions as tokens: of each choice the answer, and as much of its prompt as a trigram model sees.

    Attributes:
        gold_bytes_Q: UTF-8 bytes of each right answer, as it is scored: with the blank before it.
    """

    asked: Asked
    question_C: Integers
    gold_Q: Integers
    num_choices_Q: Integers
    gold_bytes_Q: Integers

    @classmethod
    def of(cls, questions: Sequence[Question], encode: Encode, before: int) -> Self:
        """Args: the questions, what makes tokens of texts, and the token before each text."""
        pairs = [pair for question in questions for pair in question.pairs]
        kept, scored = [], []
        for ids, length in parted_tokens(pairs, encode):
            begin = max(length - _CONTEXT, 0)
            kept.append(ids[begin:])
            scored.append(np.arange(begin, len(ids)) >= length)
        choices_Q = np.array([len(question.pairs) for question in questions], np.int64)
        gold_Q = np.cumsum(choices_Q) - choices_Q
        gold_Q += np.array([question.gold for question in questions], np.int64)
        return cls(
            Asked.of(Texts.of(kept), before, np.concatenate([np.empty(0, np.bool_), *scored])),
            np.repeat(np.arange(len(questions)), choices_Q),
            gold_Q,
            choices_Q,
            np.array([len(_parted(*pairs[place])[1].encode()) for place in gold_Q], np.int64),
        )

    def answers(self, model: TrigramModel) -> Answers:
        """What a model says of them."""
        bits_C = model.bits(self.asked)
        gold_bits_Q = bits_C[self.gold_Q]
        # Relative to the right answer's likelihood, which may be too small for a number of its own.
        relative_C = np.exp2(np.minimum(gold_bits_Q[self.question_C] - bits_C, 1_000.0))
        sums_Q = np.bincount(self.question_C, relative_C, minlength=len(self.gold_Q))
        return Answers(gold_bits_Q, np.where(self.num_choices_Q > 1, 1 / sums_Q, np.nan))


def parted_tokens(pairs: Sequence[tuple[str, str]], encode: Encode) -> Iterator[tuple[list[int], int]]:
    """Of each prompt with its answer all tokens, and how many of them are the prompt's.

    Both are made tokens together and parted where the prompt's own tokens end, as lm-eval does it: blanks that end a
    prompt belong to the answer.
    """
    parted = [_parted(*pair) for pair in pairs]
    prompts = list(dict.fromkeys(prompt for prompt, _ in parted))
    lengths = {prompt: len(ids) for prompt, ids in zip(prompts, _all(prompts, encode), strict=True)}
    whole = _all([prompt + rest for prompt, rest in parted], encode)
    for (prompt, _), ids in zip(parted, whole, strict=True):
        yield ids, lengths[prompt]


def _parted(prompt: str, answer: str) -> tuple[str, str]:
    bare = prompt.rstrip()
    return bare, prompt[len(bare) :] + answer


def _all(texts: list[str], encode: Encode) -> Iterator[list[int]]:
    for first in range(0, len(texts), _TEXTS_AT_ONCE):
        yield from encode(texts[first : first + _TEXTS_AT_ONCE])
