"""Embedding against plain `SentenceTransformer.encode` at its best batch size. Run as `python -m benchmarks.embed DIR`.

Same model, length limit, documents, process and number of cores. The peer's batch size is searched on the first
documents. All documents are then embedded a thousand at a time by every method in turn, the order turning with
each thousand, so that a machine that slows down slows all; ratios of rates, and cosines for every document.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import machine
from datamask_pipeline.embedding.config import EncoderConfig, model_directory
from datamask_pipeline.embedding.encode import embed_windows
from datamask_pipeline.embedding.encoder import load_encoders
from datamask_pipeline.hardware import resolve_batch_tokens, resolve_devices, resolve_dtype

Method = Callable[[list[str]], np.ndarray]


def texts_of(source: Path, number: int, seed: int) -> list[str]:
    """Documents of mixed length, drawn over all files, in random order."""
    tables = [pq.read_table(path, columns=["text"]) for path in sorted(source.rglob("*.parquet"))]
    table = pa.concat_tables(tables)
    rows = np.random.default_rng(seed).permutation(table.num_rows)[:number]
    texts: list[str] = table.column("text").take(pa.array(rows)).to_pylist()
    return texts


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


def ours(config: EncoderConfig) -> Method:
    """The pipeline's path, checkpoints included."""
    encoders = load_encoders(config)

    def embed(texts: list[str]) -> np.ndarray:
        size = config.window_documents
        windows = [texts[first : first + size] for first in range(0, len(texts), size)]
        budget = resolve_batch_tokens(config.batch_tokens, config.device)
        with tempfile.TemporaryDirectory() as folder:
            found = embed_windows(encoders, windows, batch_tokens=budget, checkpoints=Path(folder) / "c")
            return np.concatenate([window.vectors_ND for window in found]).astype(np.float32)

    return embed


def seconds_of(method: Method, texts: list[str]) -> tuple[np.ndarray, float]:
    begun = time.perf_counter()
    vectors = method(texts)
    return vectors, time.perf_counter() - begun


def cosines(vectors_ND: np.ndarray, reference_ND: np.ndarray) -> np.ndarray:
    """To the peer's; the offline default sets mean beside CLS, and the mean half is what the model itself gives."""
    half_ND = vectors_ND[:, : reference_ND.shape[1]]
    return (half_ND / np.linalg.norm(half_ND, axis=1, keepdims=True) * reference_ND).sum(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--documents", type=int, default=5_000)
    parser.add_argument("--encoder", default="minilm-mean-cls")
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--search-documents", type=int, default=100, help="for the peer's batch size")
    parser.add_argument("--turn", type=int, default=1_000, help="documents that each method does in turn")
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    texts = texts_of(options.source, options.documents, options.seed)

    def settings(dtype: str) -> EncoderConfig:
        return EncoderConfig(encoder=options.encoder, max_tokens=options.max_tokens, dtype=dtype)

    peer = plain(settings("float32"))
    sample = texts[: options.search_documents]
    peer(sample[:32], 8)
    found = dict.fromkeys(options.batch_sizes, 0.0)
    for size in [*options.batch_sizes, *reversed(options.batch_sizes)]:  # a busy moment must not decide
        rate = len(sample) / seconds_of(lambda texts, size=size: peer(texts, size), sample)[1]
        found[size] = max(found[size], rate)
    best = max(found, key=found.__getitem__)
    methods: dict[str, Method] = {"sentence-transformers": lambda texts: peer(texts, best)}
    for dtype in dict.fromkeys(resolve_dtype(name, "auto") for name in options.dtypes):
        methods[f"ours {dtype}"] = ours(settings(dtype))
        methods[f"ours {dtype}"](sample[:32])

    names = list(methods)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    lowest: dict[str, float] = dict.fromkeys(names[1:], 1.0)
    for turn, first in enumerate(range(0, len(texts), options.turn)):
        some = texts[first : first + options.turn]
        vectors = {}
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            vectors[name], taken = seconds_of(methods[name], some)
            seconds[name].append(taken)
        for name in lowest:
            lowest[name] = min(lowest[name], float(cosines(vectors[name], vectors[names[0]]).min()))
        print(
            f"{first + len(some)} documents",
            {n: round(s[-1], 1) for n, s in seconds.items()},
            file=sys.stderr,
        )

    report = {
        "documents": len(texts),
        "peer_documents_per_second_by_batch_size": {size: round(rate, 1) for size, rate in found.items()},
        "peer_batch_size": best,
        "documents_per_second": {name: round(len(texts) / sum(taken), 1) for name, taken in seconds.items()},
        "machine": machine(),
    }
    for name in names[1:]:
        pairs = zip(seconds[names[0]], seconds[name], strict=True)
        ratios = sorted(theirs / mine for theirs, mine in pairs)
        report[name] = {
            "ratio": round(sum(seconds[names[0]]) / sum(seconds[name]), 3),
            "median_ratio": round(statistics.median(ratios), 3),
            "ratios": [round(ratio, 3) for ratio in ratios],
            "min_cosine": round(lowest[name], 6),
        }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
