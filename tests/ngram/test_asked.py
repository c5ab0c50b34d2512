"""Questions are asked as lm-eval asks them: a model in lm-eval's own class gives the same likelihoods."""

import math

import numpy as np
import pytest
from lm_eval.api.model import TemplateLM
from transformers import PreTrainedTokenizerFast

from datamask_pipeline.evaluation.gold import ScoredQuestion
from datamask_pipeline.ngram.asked import AskedQuestions, encoded
from datamask_pipeline.ngram.trigram import Asked, Texts, TrigramModel
from datamask_pipeline.pretraining.tokenizer import encoder, train_tokenizer

TEXT = "The rain in spring fills every river, and the river fills the lake beyond the mill. " * 3


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    return train_tokenizer([TEXT], tmp_path_factory.mktemp("tokenizer"), vocab_size=320, sequence_length=64)


@pytest.fixture(scope="module")
def model(tokenizer: PreTrainedTokenizerFast) -> TrigramModel:
    end = tokenizer.eos_token_id
    learnt = Texts.of(list(encoded([TEXT, TEXT[20:]], encoder(tokenizer), end)))
    return TrigramModel(learnt, vocabulary=len(tokenizer), before=end)


class Harness(TemplateLM):
    """A trigram model as lm-eval would have it, which scores whole prompts."""

    backend = "causal"

    def __init__(self, model: TrigramModel, tokenizer: PreTrainedTokenizerFast) -> None:
        super().__init__()
        self.model, self.tokenizer = model, tokenizer

    @property
    def eot_token_id(self) -> int:
        return int(self.tokenizer.eos_token_id)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: object) -> list[int]:
        (ids,) = encoder(self.tokenizer)([string])
        return ids

    def _loglikelihood_tokens(self, requests, **_: object) -> list[tuple[float, bool]]:
        found = []
        for _, context, continuation in requests:
            scored = np.arange(len(context) + len(continuation)) >= len(context)
            (bits,) = self.model.bits(
                Asked.of(Texts.of([[*context, *continuation]]), self.eot_token_id, scored)
            )
            found.append((-float(bits) * math.log(2), False))
        return found

    def loglikelihood_rolling(self, *_: object, **__: object) -> list[float]:
        raise NotImplementedError

    def generate_until(self, *_: object, **__: object) -> list[str]:
        raise NotImplementedError


QUESTIONS = [
    ScoredQuestion(
        "a", "1", (("What fills the lake?", " the river"), ("What fills the lake?", " a mill")), 0
    ),
    ScoredQuestion("a", "2", (("The rain ", "in spring"), ("The rain ", "beyond"), ("The rain ", "zzz")), 2),
    ScoredQuestion("b", "3", (("every river of the lake", " fills"), ("every mill", " fills")), 1),
    ScoredQuestion("c", "4", (("Q: river?\nA:", " in spring"),), 0),
]


def test_likelihoods_are_those_of_lm_eval(model: TrigramModel, tokenizer: PreTrainedTokenizerFast) -> None:
    harness = Harness(model, tokenizer)
    asked = AskedQuestions.of(QUESTIONS, encoder(tokenizer), tokenizer.eos_token_id)
    answers = asked.answers(model)
    for place, question in enumerate(QUESTIONS):
        requests = [type("Request", (), {"args": pair})() for pair in question.pairs]
        nats = [value for value, _ in harness.loglikelihood(requests, disable_tqdm=True)]
        assert answers.gold_bits_Q[place] == pytest.approx(-nats[question.gold] / math.log(2))
        share = math.exp(nats[question.gold]) / sum(map(math.exp, nats))
        expected = share if len(nats) > 1 else math.nan
        assert answers.gold_probability_Q[place] == pytest.approx(expected, nan_ok=True)
    assert asked.gold_bytes_Q.tolist() == [10, 4, 6, 10]


def test_no_question_is_no_answer(model: TrigramModel, tokenizer: PreTrainedTokenizerFast) -> None:
    answers = AskedQuestions.of([], encoder(tokenizer), tokenizer.eos_token_id).answers(model)
    assert answers.gold_bits_Q.shape == (0,)
    assert np.isnan(answers.gold_probability_Q).sum() == 0
