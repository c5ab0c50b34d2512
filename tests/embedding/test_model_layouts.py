"""Small random models of many layouts: vectors equal to sentence-transformers' own, or one clear refusal."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as layers
from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import (
    BertConfig,
    BertModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5EncoderModel,
)

from datamask_pipeline.embedding.config import EncoderConfig
from datamask_pipeline.embedding.encode import embed_windows
from datamask_pipeline.embedding.encoder import load_encoder
from datamask_pipeline.embedding.loading import load_model
from datamask_pipeline.embedding.presets import PRESETS, EncoderSpec
from datamask_pipeline.errors import ConfigurationError, InputError

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


def roberta() -> Any:
    shape = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = RobertaConfig(
        vocab_size=40, max_position_embeddings=POSITIONS, pad_token_id=0, initializer_range=0.3, **shape
    )
    return RobertaModel(config)


def t5() -> Any:
    config = T5Config(
        vocab_size=40, d_model=WIDTH, d_kv=8, d_ff=64, num_layers=2, num_heads=4, pad_token_id=0
    )
    return T5EncoderModel(config)


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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("arithmetic", ["float32", "bfloat16"])
@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_modules_after_pooling_compute_whatever_the_weights_are_stored_in(
    tmp_path: Path, stored: torch.dtype, arithmetic: str
) -> None:
    after = [mean(), layers.Dense(WIDTH, 48), layers.LayerNorm(48), layers.Normalize()]
    model = saved(tmp_path, *after, dtype=stored)
    assert_alike(ours(model, tmp_path, dtype=arithmetic), theirs(model))


def refusal(spec: EncoderSpec) -> str:
    with pytest.raises(ConfigurationError) as refused:
        load_encoder(spec, device="cpu", dtype="float32")
    message = str(refused.value)
    assert spec.model in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize(("transformer", "positions"), [(bert, 80), (roberta, 79)])
def test_more_tokens_than_positions_are_refused(
    tmp_path: Path, transformer: Callable[[], Any], positions: int
) -> None:
    model = saved(tmp_path, mean(), transformer=transformer)
    message = refusal(EncoderSpec(model, max_tokens=positions + 1))
    assert f"`max_tokens` is {positions + 1}" in message
    assert f"{positions} positions" in message
    longest = ours(model, tmp_path, max_tokens=positions)
    assert np.isfinite(longest).all()


def test_the_models_own_limit_is_never_beyond_its_positions(tmp_path: Path) -> None:
    model = saved(tmp_path, mean(), transformer=roberta, max_tokens=None)
    assert SentenceTransformer(model).max_seq_length > 79
    assert load_encoder(EncoderSpec(model), device="cpu", dtype="float32").max_tokens == 79
    assert np.isfinite(ours(model, tmp_path)).all()


def test_a_model_without_a_limit_needs_one_in_the_settings(tmp_path: Path) -> None:
    model = saved(tmp_path, mean(), transformer=t5, max_tokens=None)
    assert "set `max_tokens`" in refusal(EncoderSpec(model))
    reference = SentenceTransformer(model)
    reference.max_seq_length = 50
    expected = reference.encode(TEXTS, batch_size=1, normalize_embeddings=True)
    assert_alike(ours(model, tmp_path, max_tokens=50), expected)


def test_a_limit_of_the_model_for_texts_alone_is_honoured(tmp_path: Path) -> None:
    model = saved(tmp_path, mean(), options={"processing_kwargs": {"text": {"max_length": 20}}})
    assert load_encoder(EncoderSpec(model), device="cpu", dtype="float32").max_tokens == 20
    assert_alike(ours(model, tmp_path), theirs(model))


def test_embeddings_without_a_transformer_are_refused(tmp_path: Path) -> None:
    static = layers.StaticEmbedding(tokenizer(), embedding_dim=WIDTH)
    SentenceTransformer(modules=[static], device="cpu").save(str(tmp_path / "model"))
    assert "StaticEmbedding" in refusal(EncoderSpec(str(tmp_path / "model")))


@pytest.mark.parametrize("kind", ["LSTM", "CNN", "WeightedLayerPooling"])
def test_a_module_that_is_not_computed_here_is_refused(tmp_path: Path, kind: str) -> None:
    """The second sees a batch's padding, and the third would give other vectors than its authors'."""
    further = {
        "LSTM": lambda: layers.LSTM(WIDTH, 16),
        "CNN": lambda: layers.CNN(WIDTH, 16),
        "WeightedLayerPooling": lambda: layers.WeightedLayerPooling(
            WIDTH, num_hidden_layers=2, layer_start=0
        ),
    }
    every_layer = {"config_kwargs": {"output_hidden_states": True}}
    model = saved(
        tmp_path, further[kind](), layers.Pooling(48 if kind == "CNN" else WIDTH), options=every_layer
    )
    assert f"Transformer, {kind}, Pooling" in refusal(EncoderSpec(model))


def test_a_transformer_without_a_pooling_is_refused(tmp_path: Path) -> None:
    model = saved(tmp_path, mean())
    listed = Path(model) / "modules.json"
    listed.write_text(json.dumps(json.loads(listed.read_text())[:1]))
    assert "cannot embed" in refusal(EncoderSpec(model))


def test_other_vectors_than_sentence_transformers_are_refused(tmp_path: Path) -> None:
    """A chat template, which sentence-transformers lays around every text."""
    template = "{% for message in messages %}the lazy dog {{ message['content'] }} rain{% endfor %}"
    model = saved(tmp_path, mean(), tokens={"chat_template": template})
    assert "differ from" in refusal(EncoderSpec(model))


@pytest.mark.parametrize("length", [0, 100, -100])
def test_weights_cut_short_are_refused(tmp_path: Path, length: int) -> None:
    model = saved(tmp_path, mean())
    weights = Path(model) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:length])
    assert "cannot be loaded" in refusal(EncoderSpec(model))


def without(model: str, *names: str, file: str = "model.safetensors") -> None:
    """Take tensors out of a saved model."""
    tensors = load_file(Path(model) / file)
    for name in names:
        del tensors[name]
    save_file(tensors, Path(model) / file, metadata={"format": "pt"})


@pytest.mark.parametrize(
    "name", ["encoder.layer.1.output.dense.weight", "embeddings.position_embeddings.weight"]
)
def test_weights_that_are_missing_are_refused(tmp_path: Path, name: str) -> None:
    model = saved(tmp_path, mean())
    without(model, name, "pooler.dense.weight")
    assert name in refusal(EncoderSpec(model))


def test_weights_that_are_missing_after_the_pooling_are_refused(tmp_path: Path) -> None:
    model = saved(tmp_path, mean(), layers.Dense(WIDTH, 48))
    without(model, "linear.bias", file="2_Dense/model.safetensors")
    assert "linear.bias" in refusal(EncoderSpec(model))


def test_weights_that_no_vector_needs_may_be_missing(tmp_path: Path) -> None:
    model = saved(tmp_path, mean())
    expected = theirs(model)
    without(model, "pooler.dense.weight", "pooler.dense.bias")
    assert_alike(ours(model, tmp_path), expected)


def test_what_a_checkpoint_lacks_is_nan_and_no_other_library_is_changed(tmp_path: Path) -> None:
    before = BertModel.from_pretrained
    model = saved(tmp_path, mean())
    assert load_model(model, None, "cpu")[1] == []
    without(model, "pooler.dense.weight")
    loaded, missing = load_model(model, None, "cpu")
    assert missing == ["pooler.dense.weight"]
    assert loaded[0].model.pooler.dense.weight.isnan().all()
    assert not loaded[0].model.pooler.dense.bias.isnan().any()
    assert BertModel.from_pretrained == before


def test_a_transformer_in_a_folder_of_its_own_is_found(tmp_path: Path) -> None:
    model = Path(saved(tmp_path, mean()))
    inner = model / "0_Transformer"
    inner.mkdir()
    for file in model.iterdir():
        if file.is_file() and file.name not in ("modules.json", "config_sentence_transformers.json"):
            file.rename(inner / file.name)
    modules = json.loads((model / "modules.json").read_text())
    modules[0]["path"] = inner.name
    (model / "modules.json").write_text(json.dumps(modules))
    assert load_model(str(model), None, "cpu")[1] == []
    without(str(inner), "pooler.dense.weight")
    assert load_model(str(model), None, "cpu")[1] == ["pooler.dense.weight"]


def with_nan(model: str, name: str, row: int) -> str:
    tensors = load_file(Path(model) / "model.safetensors")
    tensors[name][row] = float("nan")
    save_file(tensors, Path(model) / "model.safetensors", metadata={"format": "pt"})
    return model


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    model = with_nan(saved(tmp_path, mean()), "encoder.layer.1.output.dense.weight", 3)
    assert "not finite" in refusal(EncoderSpec(model))


def test_a_vector_that_is_not_finite_is_refused_with_its_row(tmp_path: Path) -> None:
    """A single word's weights are broken, so most documents are well."""
    model = with_nan(saved(tmp_path, mean()), "embeddings.word_embeddings.weight", 4 + WORDS.index("jumps"))
    encoder = load_encoder(EncoderSpec(model), device="cpu", dtype="float32")
    windows = [["fox", "river"], ["rain falls"], ["sea", "the fox jumps over", "dog"]]
    given = embed_windows([encoder], windows, batch_tokens=64, checkpoints=tmp_path / "kept")
    assert [len(next(given).vectors_ND) for _ in range(2)] == [2, 1]
    with pytest.raises(InputError, match=r"'model'.*row 4.*fox jumps") as refused:
        next(given)
    assert refused.value.row == 4
    assert not (tmp_path / "kept" / "window-000002.npz").exists()


def test_a_text_without_tokens_is_refused_with_its_row(tmp_path: Path) -> None:
    model = saved(tmp_path, mean())
    rules = Path(model) / "tokenizer.json"
    rules.write_text(json.dumps(json.loads(rules.read_text()) | {"post_processor": None}))
    encoder = load_encoder(EncoderSpec(model), device="cpu", dtype="float32")
    given = embed_windows([encoder], [["fox"], ["dog", "\n"]], batch_tokens=64, checkpoints=tmp_path / "kept")
    with pytest.raises(InputError, match="row 2"):
        list(given)


def test_a_vector_of_zeros_is_refused(tmp_path: Path) -> None:
    encoder = load_encoder(EncoderSpec(saved(tmp_path, mean())), device="cpu", dtype="float32")

    class Nothing(type(encoder)):
        def pool(self, states_BTH: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
            return torch.zeros(len(states_BTH), WIDTH)

    fields = {field.name: getattr(encoder, field.name) for field in dataclasses.fields(encoder)}
    with pytest.raises(InputError, match="row 0"):
        list(embed_windows([Nothing(**fields)], [["fox"]], batch_tokens=64, checkpoints=tmp_path / "kept"))


@pytest.mark.parametrize("device", [(), ""])
def test_no_device_at_all_is_refused_with_the_settings(device: Any) -> None:
    with pytest.raises(ValueError, match="names no device"):
        EncoderConfig(device=device)
