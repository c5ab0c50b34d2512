"""Small random models of many layouts: vectors equal to sentence-transformers' own, or one clear refusal."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as layers
from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from datamask_pipeline.embedding.config import EncoderConfig
from datamask_pipeline.embedding.encode import embed_windows
from datamask_pipeline.embedding.encoder import load_encoder
from datamask_pipeline.embedding.presets import PRESETS, EncoderSpec

WIDTH, POSITIONS, MAX_TOKENS = 32, 80, 64

WORDS = "the quick brown fox jumps over a lazy dog by river and sea while passage query : rain falls".split()

TEXTS = [
    "the quick brown fox",
    "rain falls over the river and the sea " * 20,
    "A LAZY dog by unknown words",
    " ".join(WORDS[n % 7] + " " + WORDS[n % 17] for n in range(90)),
    "fox",
]


def tokenizer(**settings: Any) -> PreTrainedTokenizerFast:
    vocabulary = {word: n for n, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    words = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=words, **special, **settings)


def bert() -> Any:
    shape = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    return BertModel(
        BertConfig(vocab_size=40, max_position_embeddings=POSITIONS, initializer_range=0.3, **shape)
    )


def saved(
    folder: Path,
    *after: torch.nn.Module,
    transformer: Callable[[], Any] = bert,
    dtype: torch.dtype = torch.float32,
    max_tokens: int | None = MAX_TOKENS,
    tokens: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    **model_settings: Any,
) -> str:
    """Directory of a sentence-transformers model: a transformer and the modules after it."""
    torch.manual_seed(1)
    transformer().eval().to(dtype).save_pretrained(folder / "transformer")
    tokenizer(**tokens or {}).save_pretrained(folder / "transformer")
    first = layers.Transformer(str(folder / "transformer"), max_seq_length=max_tokens, **options or {})
    model = SentenceTransformer(
        modules=[first, *(module.to(dtype) for module in after)], device="cpu", **model_settings
    )
    model.save(str(folder / "model"))
    return str(folder / "model")


def mean(**settings: Any) -> torch.nn.Module:
    return layers.Pooling(WIDTH, **settings)


def ours(
    model: str, folder: Path, prefix: str | None = None, max_tokens: int | None = None, dtype: str = "float32"
) -> NDArray[np.float32]:
    spec = EncoderSpec(model=model, prefix=prefix, max_tokens=max_tokens)
    encoder = load_encoder(spec, device="cpu", dtype=dtype)
    windows = embed_windows([encoder], [TEXTS[:3], TEXTS[3:]], batch_tokens=200, checkpoints=folder / "kept")
    return np.concatenate([window.vectors_ND for window in windows]).astype(np.float32)


def theirs(model: str, **settings: Any) -> NDArray[np.float32]:
    reference = SentenceTransformer(model, device="cpu")
    return reference.encode(TEXTS, batch_size=1, normalize_embeddings=True, **settings)


def assert_alike(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    assert found.shape == expected.shape
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    assert ((found * expected).sum(1) / lengths).min() >= 0.999


def test_the_default_prompt_is_the_prefix_unless_the_settings_state_one(tmp_path: Path) -> None:
    prompts = {"document": "passage : ", "query": "query : "}
    model = saved(tmp_path, mean(), prompts=prompts, default_prompt_name="document")
    assert_alike(ours(model, tmp_path / "default"), theirs(model))
    assert_alike(ours(model, tmp_path / "none", prefix=""), theirs(model, prompt=""))
    assert_alike(ours(model, tmp_path / "query", prefix="query : "), theirs(model, prompt_name="query"))
    assert load_encoder(EncoderSpec(model), device="cpu", dtype="float32").spec.prefix == "passage : "
    undecided = saved(tmp_path / "undecided", mean(), prompts=prompts)
    assert load_encoder(EncoderSpec(undecided), device="cpu", dtype="float32").spec.prefix == ""


def test_the_default_prompt_decides_the_fingerprint(tmp_path: Path) -> None:
    model = saved(tmp_path, mean(), prompts={"document": "passage : "}, default_prompt_name="document")
    plain, none = (EncoderConfig(encoder=model, prefix=prefix).result_config() for prefix in (None, ""))
    assert plain != none
    other = shutil.copytree(model, tmp_path / "other")
    stated = other / "config_sentence_transformers.json"
    stated.write_text(stated.read_text().replace("passage : ", "query : "))
    assert EncoderConfig(encoder=str(other)).result_config() != plain


def test_presets_state_their_prefix() -> None:
    assert all(spec.prefix is not None for spec in PRESETS.values())


@pytest.mark.parametrize("prefix", ["", "passage : ", "passage : query"])
def test_a_pooling_can_leave_the_prompt_out(tmp_path: Path, prefix: str) -> None:
    model = saved(tmp_path, mean(include_prompt=False))
    assert_alike(ours(model, tmp_path, prefix=prefix), theirs(model, prompt=prefix))


def test_a_tokenizer_that_cuts_the_left_side_sees_the_end_of_a_text(tmp_path: Path) -> None:
    model = saved(tmp_path, mean(), tokens={"truncation_side": "left"})
    assert_alike(ours(model, tmp_path), theirs(model))


@pytest.mark.parametrize("arithmetic", ["float32", "bfloat16"])
@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_modules_after_pooling_compute_whatever_the_weights_are_stored_in(
    tmp_path: Path, stored: torch.dtype, arithmetic: str
) -> None:
    after = [mean(), layers.Dense(WIDTH, 48), layers.LayerNorm(48), layers.Normalize()]
    model = saved(tmp_path, *after, dtype=stored)
    assert_alike(ours(model, tmp_path, dtype=arithmetic), theirs(model))
