"""Embedding against plain `SentenceTransformer.encode` at its best batch size. Run as `python -m benchmarks.embed DIR`.

Same model, same length limit, same documents, same process; cosines between the two for every document.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datamask_pipeline.embedding.config import EncoderConfig, model_directory
from datamask_pipeline.embedding.encode import embed_windows
from datamask_pipeline.embedding.encoder import load_encoder
from datamask_pipeline.embedding.hardware import resolve_device, resolve_dtype


def texts_of(source: Path, number: int, seed: int) -> list[str]:
    """Documents of mixed length, drawn over all files."""
    tables = [pq.read_table(path, columns=["text"]) for path in sorted(source.rglob("*.parquet"))]
    table = pa.concat_tables(tables)
    rows = np.sort(
        np.random.default_rng(seed).choice(table.num_rows, min(number, table.num_rows), replace=False)
    )
    texts: list[str] = table.column("text").take(pa.array(rows)).to_pylist()
    return texts


def plain(
    texts: list[str], config: EncoderConfig, batch_sizes: list[int]
) -> tuple[np.ndarray, dict[int, float]]:
    """Mean-pooled vectors, and documents per second by batch size."""
    from sentence_transformers import SentenceTransformer

    spec = config.spec()
    device = resolve_device(config.device)
    model = SentenceTransformer(
        str(model_directory(spec) or spec.model), revision=spec.revision or None, device=device
    )
    model.max_seq_length = spec.max_tokens or model.max_seq_length
    model.encode(texts[:8])
    rates = {}
    for size in batch_sizes:
        begun = time.perf_counter()
        vectors = model.encode(
            [spec.prefix + text for text in texts], batch_size=size, normalize_embeddings=True
        )
        rates[size] = len(texts) / (time.perf_counter() - begun)
    return vectors, rates


def ours(texts: list[str], config: EncoderConfig) -> tuple[np.ndarray, float]:
    """Vectors of the pipeline's path, checkpoints included, and documents per second."""
    dtype = resolve_dtype(config.dtype, config.device)
    encoder = load_encoder(config.spec(), device=resolve_device(config.device), dtype=dtype)
    encoder.embed(encoder.tokenise(texts[:8]), {})
    size = config.window_documents
    windows = [texts[first : first + size] for first in range(0, len(texts), size)]
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        found = embed_windows(
            encoder, windows, batch_tokens=config.batch_tokens, checkpoints=Path(folder) / "c"
        )
        vectors = np.concatenate([window.vectors_ND for window in found])
        return vectors.astype(np.float32), len(texts) / (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--documents", type=int, default=5_000)
    parser.add_argument("--encoder", default="minilm-mean-cls")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--dtypes", nargs="+", default=["auto", "float32"])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    texts = texts_of(options.source, options.documents, options.seed)
    reference, rates = plain(texts, EncoderConfig(encoder=options.encoder), options.batch_sizes)
    best = max(rates.values())
    report: dict[str, object] = {"documents": len(texts), "sentence_transformers": rates}
    for dtype in options.dtypes:
        config = EncoderConfig(encoder=options.encoder, dtype=dtype)
        vectors, rate = ours(texts, config)
        # The offline default sets mean beside CLS; the mean half is what the model itself gives.
        half = vectors[:, : reference.shape[1]]
        cosines = (half / np.linalg.norm(half, axis=1, keepdims=True) * reference).sum(axis=1)
        report[resolve_dtype(dtype, "auto")] = {
            "documents_per_second": rate,
            "ratio": rate / best,
            "min_cosine": float(cosines.min()),
        }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
