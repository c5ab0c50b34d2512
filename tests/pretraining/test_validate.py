import math

import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from datamask_pipeline.errors import InputError
from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.pretraining.model import build_model
from datamask_pipeline.pretraining.validate import answer_bits, bits_per_byte


@pytest.fixture
def model(config: PretrainConfig, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    model = build_model(config, vocab_size=len(tokenizer), end_of_text=tokenizer.eos_token_id)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8)  # an untrained model is near uniform: make its predictions differ
    return model


def _one_token_at_a_time(model: PreTrainedModel, ids: list[int], length: int) -> float:
    """The definition, without batches, padding or cross entropy."""
    bits = 0.0
    for position in range(1, len(ids)):
        begin = (position - 1) // length * length
        logits = model(input_ids=torch.tensor([ids[begin:position]])).logits[0, -1].detach().double()
        bits -= float(torch.log_softmax(logits, dim=0)[ids[position]]) / math.log(2)
    return bits


def test_it_equals_the_definition(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, texts: list[str]
) -> None:
    chosen = [texts[0][:90], "naïve 数据", texts[1][:37], "a <|endoftext|> b"]
    found = bits_per_byte(model, tokenizer, chosen, sequence_length=6, batch_size=4)
    end = tokenizer.eos_token_id
    model.eval()
    expected = [
        _one_token_at_a_time(model, [end, *tokenizer(text)["input_ids"], end], length=6) for text in chosen
    ]
    assert found.document_bits == pytest.approx(expected, rel=1e-5)
    assert found.document_bytes == (len(chosen[0].encode()), 13, len(chosen[2].encode()), 17)
    assert tokenizer(chosen[3])["input_ids"].count(end) == 0
    assert found.bits_per_byte == pytest.approx(sum(expected) / sum(found.document_bytes), rel=1e-5)
    assert found.num_tokens == sum(len(tokenizer(text)["input_ids"]) + 1 for text in chosen)


def test_a_uniform_model_spends_the_logarithm_of_the_vocabulary(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, texts: list[str]
) -> None:
    with torch.no_grad():
        model.get_input_embeddings().weight.zero_()  # tied: all logits are 0
    found = bits_per_byte(model, tokenizer, texts, sequence_length=16)
    assert sum(found.document_bits) == pytest.approx(found.num_tokens * math.log2(len(tokenizer)), rel=1e-6)


def test_batches_do_not_matter(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, texts: list[str]
) -> None:
    one, many = (
        bits_per_byte(model, tokenizer, texts[:20], sequence_length=16, batch_size=size) for size in (1, 64)
    )
    assert one.bits_per_byte == pytest.approx(many.bits_per_byte, rel=1e-6)


def test_no_text_is_refused(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(InputError, match="no text"):
        bits_per_byte(model, tokenizer, [], sequence_length=16)


def test_answers_are_scored_alone_and_long_prompts_lose_their_beginning(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, texts: list[str]
) -> None:
    model.eval()
    end, ids = tokenizer.eos_token_id, tokenizer(texts[0][:200])["input_ids"]
    asked = [([end, *ids[:5]], 3), ([end, *ids[:30]], 28), ([end, *ids[3:12]], 1)]
    found = answer_bits(model, asked, 10, batch_size=2)
    expected = []
    for whole, before in asked:
        gone = max(len(whole) - 11, 0)
        expected.append(
            sum(
                -float(
                    torch.log_softmax(
                        model(input_ids=torch.tensor([whole[gone:place]])).logits[0, -1].detach().double(),
                        dim=0,
                    )[whole[place]]
                )
                / math.log(2)
                for place in range(before, len(whole))
            )
        )
    assert found == pytest.approx(expected, rel=1e-5)
    with pytest.raises(InputError, match="an answer has 11 tokens, more than a sequence of 10"):
        answer_bits(model, [([end, *ids[:11]], 1)], 10)
