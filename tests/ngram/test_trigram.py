"""The trigram model: against a plain slow one, its sums, and what it sees in planted texts."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pytest

from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.ngram.trigram import TOKEN_BITS, Asked, Texts, TrigramModel

BEFORE, VOCABULARY = 0, 12


def texts_of(generator: np.random.Generator, number: int) -> list[list[int]]:
    lengths = generator.integers(0, 12, number)
    return [[*generator.integers(1, VOCABULARY - 2, size), BEFORE] for size in lengths]


class Plain:
    """Witten-Bell by dictionaries, straight from the formula; knows no packing and no sorting."""

    def __init__(self, texts: Sequence[Sequence[int]]) -> None:
        self.counts: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for text in texts:
            padded = [BEFORE, BEFORE, *text]
            for place in range(2, len(padded)):
                for order in range(3):
                    self.counts[tuple(padded[place - order : place])][padded[place]] += 1

    def probability(self, token: int, context: tuple[int, ...]) -> float:
        lower = self.probability(token, context[1:]) if context else 1 / VOCABULARY
        seen = self.counts.get(context)
        if not seen:
            return lower
        return (seen[token] + len(seen) * lower) / (sum(seen.values()) + len(seen))

    def bits(self, text: Sequence[int]) -> float:
        padded = [BEFORE, BEFORE, *text]
        return -math.fsum(
            math.log2(self.probability(padded[place], tuple(padded[place - 2 : place])))
            for place in range(2, len(padded))
        )


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_plain_model(seed: int) -> None:
    generator = np.random.default_rng(seed)
    learnt, asked = texts_of(generator, 30), [*texts_of(generator, 20), [11, 10, 11], []]
    model, plain = TrigramModel(Texts.of(learnt), vocabulary=VOCABULARY, before=BEFORE), Plain(learnt)
    assert model.bits(Asked.of(Texts.of(asked), BEFORE)) == pytest.approx(
        [plain.bits(text) for text in asked], rel=1e-12
    )


@pytest.mark.parametrize("copies", [1, 20])
def test_probabilities_of_every_context_sum_to_one(copies: int) -> None:
    learnt = texts_of(np.random.default_rng(7), 25) * copies
    model = TrigramModel(Texts.of(learnt), vocabulary=VOCABULARY, before=BEFORE)
    every = [[u, v, w] for u in range(VOCABULARY) for v in range(VOCABULARY) for w in range(VOCABULARY)]
    third = np.tile([False, False, True], len(every))
    last = model.bits(Asked.of(Texts.of(every), BEFORE, third))
    assert (2.0**-last).reshape(-1, VOCABULARY).sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    assert np.isfinite(last).all()


def test_the_largest_vocabulary_is_packed_without_loss() -> None:
    top = 2**TOKEN_BITS - 1
    model = TrigramModel(Texts.of([[top, top, top, 0], [top, 1, top, 0]]), vocabulary=top + 1, before=top)
    seen, unseen = model.bits(Asked.of(Texts.of([[top, top, top, 0], [2, top, 1, 3]]), top))
    assert seen < 10 < unseen
    with pytest.raises(ConfigurationError, match=r"at most 2,097,152 tokens, not 2,097,153"):
        TrigramModel(Texts.of([[0]]), vocabulary=top + 2, before=0)


def test_no_token_is_no_model() -> None:
    with pytest.raises(InputError, match="needs a text"):
        TrigramModel(Texts.of([[], []]), vocabulary=4, before=0)


def test_texts_are_cut_at_a_number_of_tokens() -> None:
    texts = Texts.of([[1, 2, 3], [], [4, 5], [6]])
    for number in range(8):
        cut = texts.cut(number)
        assert cut.tokens_T.tolist() == [1, 2, 3, 4, 5, 6][:number]
        assert cut.offsets_D[-1] == min(number, 6)
        assert (np.diff(cut.offsets_D) >= 0).all()
    assert texts.cut(4).offsets_D.tolist() == [0, 3, 3, 4]
    assert texts.cut(3).offsets_D.tolist() == [0, 3], "no text that nothing is left of"


def test_it_sees_what_it_learnt_from_and_not_what_is_shuffled() -> None:
    generator = np.random.default_rng(3)
    sentence = generator.integers(1, VOCABULARY, 40).tolist()
    texts = [sentence] * 10
    shuffled = [generator.permutation(sentence).tolist() for _ in texts]
    asked = Asked.of(Texts.of([sentence]), BEFORE)
    (good,) = TrigramModel(Texts.of(texts), vocabulary=VOCABULARY, before=BEFORE).bits(asked)
    (bad,) = TrigramModel(Texts.of(shuffled), vocabulary=VOCABULARY, before=BEFORE).bits(asked)
    assert good < bad / 2


def test_only_what_is_scored_counts() -> None:
    model = TrigramModel(Texts.of([[1, 2, 3, 4]]), vocabulary=VOCABULARY, before=BEFORE)
    plain, texts = Plain([[1, 2, 3, 4]]), Texts.of([[1, 2, 3], [], [2, 2]])
    bits = model.bits(Asked.of(texts, BEFORE, np.array([False, True, True, False, True])))
    expected = [(2, (BEFORE, 1)), (3, (1, 2)), (2, (BEFORE, 2))]
    first, second, third = (-math.log2(plain.probability(*one)) for one in expected)
    assert bits == pytest.approx([first + second, 0.0, third])
