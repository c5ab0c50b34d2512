"""Encoders and training give on a GPU what they give on the processor. Needs a CUDA device."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as layers
from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from datamask_pipeline.embedding.config import EncoderConfig
from datamask_pipeline.embedding.encode import embed_windows
from datamask_pipeline.embedding.encoder import load_encoders
from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.pretraining.tokenizer import train_tokenizer
from datamask_pipeline.pretraining.train import PretrainResult, pretrain

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

WORDS = "rain falls over the river and the sea while a quick brown fox jumps by some lazy dog".split()


def texts(number: int, seed: int = 0) -> list[str]:
    draws = np.random.default_rng(seed)
    return [" ".join(draws.choice(WORDS, size=draws.integers(3, 90))) + f" {n}" for n in range(number)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random BERT of 64 dimensions with a word-level tokenizer."""
    folder = tmp_path_factory.mktemp("encoder")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    words = Tokenizer(
        WordLevel({word: n for n, word in enumerate(dict.fromkeys(special + WORDS))}, unk_token="[UNK]")
    )
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    torch.manual_seed(0)
    shape = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128}
    config = BertConfig(vocab_size=40, max_position_embeddings=80, initializer_range=0.2, **shape)
    BertModel(config).eval().save_pretrained(folder / "transformer")
    PreTrainedTokenizerFast(tokenizer_object=words, **names).save_pretrained(folder / "transformer")
    first = layers.Transformer(str(folder / "transformer"), max_seq_length=64)
    SentenceTransformer(modules=[first, layers.Pooling(64)], device="cpu").save(str(folder / "model"))
    return str(folder / "model")


def vectors(model: str, folder: Path, device: str | list[str], dtype: str) -> NDArray[np.float32]:
    config = EncoderConfig(encoder=model, device=device, dtype=dtype)
    windows = [texts(60), texts(50, seed=1)]
    found = embed_windows(load_encoders(config), windows, batch_tokens=512, checkpoints=folder)
    return np.concatenate([window.vectors_ND for window in found]).astype(np.float32)


def test_vectors_are_the_processors_whatever_the_number_of_workers(model: str, tmp_path: Path) -> None:
    here = vectors(model, tmp_path / "here", "cpu", "float32")
    one = vectors(model, tmp_path / "one", ["cuda:0"], "float32")
    two = vectors(model, tmp_path / "two", ["cuda:0", "cuda:0"], "float32")
    half = vectors(model, tmp_path / "half", "auto", "bfloat16")
    assert (one == two).all()
    assert np.abs(one - here).max() < 1e-3
    assert (half * here).sum(1).min() > 0.99


@pytest.mark.parametrize("architecture", ["dense", "moe"])
def test_a_model_learns_as_on_the_processor(architecture: str, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(texts(200), tmp_path / "tokenizer", vocab_size=300, sequence_length=32)
    shape = {"hidden_size": 32, "num_layers": 2, "num_heads": 2, "intermediate_size": 64, "num_experts": 4}
    config = PretrainConfig(
        architecture=architecture,
        sequence_length=32,
        batch_size=8,
        token_budget=40 * 8 * 32,
        log_every_steps=4,
        checkpoint_every_steps=20,
        **shape,
    )

    def run(name: str, **changes: object) -> PretrainResult:
        own = config.model_copy(update=changes)
        return pretrain(texts(200), tokenizer, texts(20, seed=2), tmp_path / name, own)

    here, there, half = run("here"), run("there", device="cuda"), run("half", device="cuda", dtype="bfloat16")
    again = pretrain(
        texts(200),
        tokenizer,
        texts(20, seed=2),
        tmp_path / "there",
        config.model_copy(update={"device": "cuda"}),
    )
    assert again.curve == there.curve
    assert there.validation.bits_per_byte == pytest.approx(here.validation.bits_per_byte, rel=0.01)
    assert half.validation.bits_per_byte == pytest.approx(here.validation.bits_per_byte, rel=0.05)
    assert there.curve[-1]["loss"] < there.curve[0]["loss"] - 0.5
    assert there.speed is not None
    assert 0 < there.speed.utilisation < 1
