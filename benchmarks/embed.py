"""Embedding against plain `SentenceTransformer.encode` at its best batch size. Knows no engine and no score.

Same model, length limit, documents, process and number of cores; each arithmetic against the peer in the same one. The
peer's batch size is searched for on the first documents. All documents are then embedded some hundred at a time by every
method in turn, the order turning, so that a machine that slows down slows all. Times are the processor's: medians of the
turns' ratios, and cosines for every document.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch

from benchmarks.data import texts_of
from benchmarks.harness import Context, Outcome, at_least, processor_seconds
from datamask_pipeline.embedding.config import EncoderConfig, model_directory
from datamask_pipeline.embedding.encode import Window, embed_windows
from datamask_pipeline.embedding.encoder import Encoder, load_encoders
from datamask_pipeline.hardware import resolve_batch_tokens, resolve_devices, resolve_dtype

TITLE = "Embedding, documents of mixed length"
QUESTION = "How many documents a second, against the plain encoder at its best batch size?"
LONG = True
DOCUMENTS, TURN = 1_500, 250
"""Documents in all, and those that each method does in turn."""
SEARCH_DOCUMENTS, BATCH_SIZES = 60, (1, 2, 4, 8, 16, 32, 64)
"""For the peer's batch size."""
TARGETS = {"bfloat16": 1.5, "float32": 1.1}
PEER = "sentence-transformers"

Method = Callable[[list[str]], np.ndarray]


def plain(config: EncoderConfig) -> Callable[[list[str], int], np.ndarray]:
    """The peer, given texts and a batch size."""
    from sentence_transformers import SentenceTransformer

    spec = config.spec()
    model = SentenceTransformer(
        str(model_directory(spec) or spec.model),
        revision=spec.revision or None,
        device=resolve_devices(config.device)[0],
    ).to(getattr(torch, config.dtype))
    model.max_seq_length = spec.max_tokens or model.max_seq_length

    def embed(texts: list[str], batch_size: int) -> np.ndarray:
        prefixed = [spec.prefix + text for text in texts]
        vectors = model.encode(
            prefixed,
            batch_size=batch_size,
            normalize_embeddings=True,
            show_progress_bar=False,
            convert_to_numpy=False,
        )
        return torch.stack(vectors).float().cpu().numpy()

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


def seconds_of(
    method: Method, texts: list[str], clock: Callable[[], float] = time.perf_counter
) -> tuple[np.ndarray, float]:
    begun = clock()
    vectors = method(texts)
    return vectors, clock() - begun


def cosines(vectors_ND: np.ndarray, reference_ND: np.ndarray) -> np.ndarray:
    """To the peer's; the offline default sets mean beside CLS, and the mean half is what the model itself gives."""
    half_ND = vectors_ND[:, : reference_ND.shape[1]]
    return (half_ND / np.linalg.norm(half_ND, axis=1, keepdims=True) * reference_ND).sum(axis=1)


def settings(dtype: str) -> EncoderConfig:
    """The embedded default's encoder."""
    return EncoderConfig(encoder="minilm-mean-cls", dtype=dtype)


def best_batch_size(peer: Callable[[list[str], int], np.ndarray], sample: list[str]) -> dict[int, float]:
    """The peer's documents a processor second by batch size, medians of three runs each, there and back and there."""
    peer(sample[:32], 8)
    taken: dict[int, list[float]] = {size: [] for size in BATCH_SIZES}
    for size in [*BATCH_SIZES, *reversed(BATCH_SIZES), *BATCH_SIZES]:
        taken[size].append(
            seconds_of(lambda texts, size=size: peer(texts, size), sample, processor_seconds)[1]
        )
    return {size: len(sample) / median(seconds) for size, seconds in taken.items()}


def run(context: Context) -> Outcome:
    """Once over the documents of the first seed."""
    outcome = Outcome()
    texts = texts_of(context.documents, context.size(DOCUMENTS), context.seeds[0])
    sample = texts[:SEARCH_DOCUMENTS]
    kinds = list(dict.fromkeys(resolve_dtype(name, "auto") for name in ("auto", "float32")))
    methods: dict[str, Method] = {}
    for kind in kinds:
        peer = plain(settings(kind))
        rates = best_batch_size(peer, sample)
        best = max(rates, key=rates.__getitem__)
        methods[f"{PEER}, {kind}"] = lambda some, peer=peer, best=best: peer(some, best)
        methods[f"datamask, {kind}"] = ours(settings(kind))
        methods[f"datamask, {kind}"](sample[:32])
        found = ", ".join(f"{size}: {rate:.1f}" for size, rate in rates.items())
        outcome.notes.append(
            f"Plain encode's documents a processor second by batch size, {kind}: {found}; {best} was taken."
        )

    names = list(methods)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    lowest = dict.fromkeys(names, 1.0)
    for turn, first in enumerate(range(0, len(texts), TURN)):
        some = texts[first : first + TURN]
        vectors = {}
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            vectors[name], taken = seconds_of(methods[name], some, processor_seconds)
            seconds[name].append(taken)
        for name in names:
            reference = vectors[f"{PEER}, float32"]
            lowest[name] = min(lowest[name], float(cosines(vectors[name], reference).min()))
    for name in names:
        rate = len(texts) / sum(seconds[name])
        row = {"method": name, "documents": len(texts), "documents per processor second": rate}
        outcome.rows.append(row | {"lowest cosine": lowest[name]})
    for kind in kinds:
        turns = zip(seconds[f"{PEER}, {kind}"], seconds[f"datamask, {kind}"], strict=True)
        outcome.claims += [
            at_least(
                f"{kind}: documents per processor second, against plain encode in {kind}",
                TARGETS[kind],
                median(theirs / own for theirs, own in turns),
            ),
            at_least(f"{kind}: lowest cosine to float32's", 0.999, lowest[f"datamask, {kind}"], ".5f"),
        ]
    return outcome
