"""However a step's batch is divided, by forward passes or processes, the losses are those of one pass in one process."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from datamask_pipeline.experiment.collection import Ruler
from datamask_pipeline.experiment.proxy import proxy_bits
from datamask_pipeline.ngram.asked import encoded
from datamask_pipeline.ngram.trigram import Texts
from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.pretraining.data import PackedBlocks, tokenise
from datamask_pipeline.pretraining.model import build_model
from datamask_pipeline.pretraining.tokenizer import encoder
from datamask_pipeline.pretraining.train import pretrain


def _losses(
    config: PretrainConfig, texts: list[str], tokenizer: PreTrainedTokenizerFast, directory: Path
) -> list[float]:
    shown = []
    result = pretrain(
        texts[20:], tokenizer, texts[:2], directory, config, lambda done, total: shown.append((done, total))
    )
    assert shown == [(step, config.num_steps) for step in range(1, config.num_steps + 1)]
    return [point["loss"] for point in result.curve]


@pytest.fixture
def stepwise(config: PretrainConfig) -> PretrainConfig:
    """Twenty steps, each of them logged."""
    return config.model_copy(
        update={"token_budget": 20 * 4 * 16, "log_every_steps": 1, "checkpoint_every_steps": 20}
    )


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("architecture", ["dense", "moe"])
def test_passes(
    stepwise: PretrainConfig,
    architecture: str,
    texts: list[str],
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
) -> None:
    whole = stepwise.model_copy(update={"architecture": architecture})
    parts = whole.model_copy(update={"micro_batch_size": 1})
    assert parts.accumulation_steps == 4
    # Experts are balanced over the tokens of a pass: of the parts, the mean is close to that of the whole.
    tolerance = 1e-5 if architecture == "dense" else 1e-3
    assert _losses(parts, texts, tokenizer, tmp_path / "parts") == pytest.approx(
        _losses(whole, texts, tokenizer, tmp_path / "whole"), abs=tolerance
    )


@pytest.mark.slow
def test_processes(
    stepwise: PretrainConfig, texts: list[str], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    two = stepwise.model_copy(update={"processes": 2, "micro_batch_size": 1})
    assert _losses(two, texts, tokenizer, tmp_path / "two") == pytest.approx(
        _losses(stepwise, texts, tokenizer, tmp_path / "one"), abs=1e-5
    )


@pytest.mark.slow
def test_processes_of_an_experiments_network(
    config: PretrainConfig, texts: list[str], tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    unread: Any = None
    encode, end = encoder(tokenizer), int(tokenizer.eos_token_id)
    learnt, held_out = (Texts.of(list(encoded(some, encode, end))) for some in (texts[20:], texts[:5]))
    ruler = Ruler(
        encode, end, len(tokenizer), unread, unread, ["held_out_documents"] * 5, unread, [], held_out
    )
    one = proxy_bits(learnt, ruler, config, tmp_path / "one")
    two = proxy_bits(learnt, ruler, config.model_copy(update={"processes": 2}), tmp_path / "two")
    assert two.tokens == one.tokens
    assert two.bits_CI == pytest.approx(one.bits_CI, rel=1e-4)


@pytest.mark.parametrize("architecture", ["dense", "moe"])
def test_a_document_is_seen_by_itself_alone(
    config: PretrainConfig,
    architecture: str,
    texts: list[str],
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
) -> None:
    config = config.model_copy(update={"architecture": architecture, "sequence_length": 200})
    model = build_model(config, vocab_size=len(tokenizer), end_of_text=tokenizer.eos_token_id).eval()
    blocks = PackedBlocks(tokenise(texts[:9], tokenizer, tmp_path), sequence_length=200, num_blocks=4, seed=0)
    block_T = next(
        found for found in (blocks[number] for number in range(4)) if (found["position_ids"] == 0).sum() > 1
    )
    begin = int((block_T["position_ids"] == 0).nonzero()[1])
    ids_1T, positions_1T = block_T["input_ids"][None], block_T["position_ids"][None]
    with torch.inference_mode():
        packed = model(input_ids=ids_1T, position_ids=positions_1T).logits[0, begin:]
        alone = model(input_ids=ids_1T[:, begin:], position_ids=positions_1T[:, begin:]).logits[0]
        one_text = model(input_ids=ids_1T).logits[0, begin:]
    torch.testing.assert_close(packed, alone, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(packed, one_text, atol=1e-3)
