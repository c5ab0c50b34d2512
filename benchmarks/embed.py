"""Embedding against plain `SentenceTransformer.encode` at its best batch size. Knows no engine and no score.

Same model, length limit, documents, process and number of cores. The peer's batch size is searched on the first
documents. All documents are then embedded a thousand at a time by every method in turn, the order turning with
each thousand, so that a machine that slows down slows all; ratios of rates, and cosines for every document.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.data import texts_of
from benchmarks.harness import Context, Outcome, at_least
from datamask_pipeline.embedding.config import EncoderConfig, model_directory
from datamask_pipeline.embedding.encode import Window, embed_windows
from datamask_pipeline.embedding.encoder import Encoder, load_encoders
from datamask_pipeline.hardware import resolve_batch_tokens, resolve_devices, resolve_dtype

TITLE = "Embedding, documents of mixed length"
QUESTION = "How many documents a second, against the plain encoder at its best batch size?"
LONG = True
DOCUMENTS, TURN = 5_000, 1_000
"""Documents in all, and those that each method does in turn."""
SEARCH_DOCUMENTS, BATCH_SIZES = 100, (1, 2, 4, 8, 16, 32, 64)
"""For the peer's batch size."""
TARGETS = {"bfloat16": 1.5, "float32": 1.1}
PEER = "sentence-transformers"

Method = Callable[[list[str]], np.ndarray]


def plain(config: EncoderConfig) -> Callable[[list[str], int], np.ndarray]:
    """The peer, given texts and a batch size: float32, as it comes."""
    from sentence_transformers import SentenceTransformer

    spec = config.spec()
    model = SentenceTransformer(
        str(model_directory(spec) or spec.model),
        revision=spec.revision or None,
        device=resolve_devices(config.device)[0],
    )
    model.max_seq_length = spec.max_tokens or model.max_seq_length

    def embed(texts: list[str], batch_size: int) -> np.ndarray:
        prefixed = [spec.prefix + text for text in texts]
        vectors: np.ndarray = model.encode(
            prefixed, batch_size=batch_size, normalize_embeddings=True, show_progress_bar=False
        )
        return vectors

    return embed


def windows_of(
    config: EncoderConfig, prepare: Callable[[Encoder], Encoder] = lambda encoder: encoder
) -> Callable[[list[str]], list[Window]]:
    """The pipeline's path, checkpoints included."""
    encoders = load_encoders(config, prepare)

    def embed(texts: list[str]) -> list[Window]:
        size = config.window_documents
        windows = [texts[first : first + size] for first in range(0, len(texts), size)]
        budget = resolve_batch_tokens(config.batch_tokens, config.device)
        with tempfile.TemporaryDirectory() as folder:
            return list(embed_windows(encoders, windows, batch_tokens=budget, checkpoints=Path(folder) / "c"))

    return embed


def vectors_of(windows: list[Window]) -> np.ndarray:
    return np.concatenate([window.vectors_ND for window in windows]).astype(np.float32)


def ours(config: EncoderConfig) -> Method:
    embed = windows_of(config)
    return lambda texts: vectors_of(embed(texts))


def seconds_of(method: Method, texts: list[str]) -> tuple[np.ndarray, float]:
    begun = time.perf_counter()
    vectors = method(texts)
    return vectors, time.perf_counter() - begun


def cosines(vectors_ND: np.ndarray, reference_ND: np.ndarray) -> np.ndarray:
    """To the peer's; the offline default sets mean beside CLS, and the mean half is what the model itself gives."""
    half_ND = vectors_ND[:, : reference_ND.shape[1]]
    return (half_ND / np.linalg.norm(half_ND, axis=1, keepdims=True) * reference_ND).sum(axis=1)


def settings(dtype: str) -> EncoderConfig:
    """The embedded default's encoder."""
    return EncoderConfig(encoder="minilm-mean-cls", dtype=dtype)


def best_batch_size(peer: Callable[[list[str], int], np.ndarray], sample: list[str]) -> dict[int, float]:
    """The peer's documents a second by batch size, the better of two runs each: a busy moment must not decide."""
    peer(sample[:32], 8)
    rates = dict.fromkeys(BATCH_SIZES, 0.0)
    for size in [*BATCH_SIZES, *reversed(BATCH_SIZES)]:
        _, taken = seconds_of(lambda texts, size=size: peer(texts, size), sample)
        rates[size] = max(rates[size], len(sample) / taken)
    return rates


def run(context: Context) -> Outcome:
    """Once over the documents of the first seed."""
    outcome = Outcome()
    texts = texts_of(context.documents, context.size(DOCUMENTS), context.seeds[0])
    sample = texts[:SEARCH_DOCUMENTS]
    peer = plain(settings("float32"))
    rates = best_batch_size(peer, sample)
    best = max(rates, key=rates.__getitem__)
    methods: dict[str, Method] = {PEER: lambda some: peer(some, best)}
    for dtype in dict.fromkeys(resolve_dtype(name, "auto") for name in ("auto", "float32")):
        methods[dtype] = ours(settings(dtype))
        methods[dtype](sample[:32])

    names = list(methods)
    seconds = dict.fromkeys(names, 0.0)
    lowest = dict.fromkeys(names, 1.0)
    for turn, first in enumerate(range(0, len(texts), TURN)):
        some = texts[first : first + TURN]
        vectors = {}
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            vectors[name], taken = seconds_of(methods[name], some)
            seconds[name] += taken
        for name in names:
            lowest[name] = min(lowest[name], float(cosines(vectors[name], vectors[PEER]).min()))
    for name in names:
        method = PEER if name == PEER else f"datamask, {name}"
        rate = len(texts) / seconds[name]
        row = {"method": method, "documents": len(texts), "documents per second": rate}
        outcome.rows.append(row | {"lowest cosine": lowest[name]})
    for name in names[1:]:
        ratio = seconds[PEER] / seconds[name]
        outcome.claims += [
            at_least(f"{name}: documents per second, against plain encode", TARGETS[name], ratio),
            at_least(f"{name}: lowest cosine to it", 0.999, lowest[name], ".5f"),
        ]
    found = ", ".join(f"{size}: {rate:.1f}" for size, rate in rates.items())
    outcome.notes.append(f"Plain encode's documents a second by batch size: {found}; {best} was taken.")
    return outcome
