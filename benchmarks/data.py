"""Documents, and vectors and scores to select from. Knows no engine.

Shape suffixes: M real vectors, N documents, n documents of a chunk, D dimensions.

Real vectors come from a Parquet file, or are the embedded default's own documents. A block no larger than they are
is a seeded sample of them. For larger blocks, points are drawn around them: a real vector, moved up to half the way
towards one of its 8 nearest real neighbours, plus isotropic noise of norm `NOISE`, brought back to unit norm and
stored as float16.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

NOISE = 0.3
NEIGHBOURS = 8
CHUNK = 16_384
DEFAULT_DOCUMENTS = 3_000
DEFAULT_TOKENS = 128
CENTRES, SPREAD, COPIED, SHIFT = 500, 0.5, 0.5, 0.02
"""Of clustered vectors: centres of norm 1, the norm of the noise around one, the share of rows that are near-copies of
the others, the norm of their difference."""
SIGNAL = 0.5
"""Share of a drawn score's variance that is a direction in the embedding; the rest is noise of its own."""


@dataclass(frozen=True, kw_only=True)
class Base:
    """Real vectors.

    Attributes:
        vectors_MD: float16 of unit norm.
        quality_M: float64 scores, where the file has them.
        source: Where they come from, in words.
    """

    vectors_MD: NDArray[np.float16]
    quality_M: NDArray[np.float64] | None
    source: str

    @property
    def digest(self) -> str:
        """The vectors' own name: ten hexadecimal digits."""
        return hashlib.sha256(self.vectors_MD.tobytes()).hexdigest()[:10]


def base_of_file(path: Path, column: str, quality_column: str | None) -> Base:
    """The vectors of a Parquet file's list column."""
    table = pq.read_table(path, columns=[column, *([quality_column] if quality_column else [])])
    lists = table.column(column).combine_chunks()
    vectors_MD = np.asarray(lists.flatten()).reshape(len(lists), -1)
    scores = table.column(quality_column).to_numpy().astype(np.float64) if quality_column else None
    what = f"{len(vectors_MD):,} real vectors of {vectors_MD.shape[1]} dimensions given in a file"
    return Base(vectors_MD=_unit_half(torch.from_numpy(vectors_MD.copy())), quality_M=scores, source=what)


def base_of_installation(cache: Path) -> Base:
    """The first documents of the embedded default, embedded by the embedded default's model."""
    from datamask_pipeline.embedding.config import EncoderConfig
    from datamask_pipeline.embedding.encode import embed_tokens
    from datamask_pipeline.embedding.encoder import load_encoders
    from datamask_pipeline.embedding.workers import EncoderWorkers
    from datamask_pipeline.hardware import resolve_batch_tokens

    if not cache.exists():
        texts = [text for batch in _installed() for text in batch.column("text").to_pylist()]
        step = max(1, len(texts) // DEFAULT_DOCUMENTS)
        config = EncoderConfig(max_tokens=DEFAULT_TOKENS, device="cpu")
        with EncoderWorkers(load_encoders(config)) as workers:
            tokens = workers.model.tokenise(texts[::step][:DEFAULT_DOCUMENTS])
            window = embed_tokens(workers, tokens, resolve_batch_tokens(None, "cpu"))
        np.save(cache, window.vectors_ND)
    vectors_MD = np.load(cache)
    what = (
        f"{len(vectors_MD):,} documents of the embedded default, first {DEFAULT_TOKENS} tokens, "
        "all-MiniLM-L6-v2, mean and CLS pooling side by side"
    )
    return Base(vectors_MD=_unit_half(torch.from_numpy(vectors_MD)), quality_M=None, source=what)


def documents_of_installation(folder: Path) -> Path:
    """The embedded default's documents as one Parquet file in a folder of its own."""
    path = folder / "documents" / "installed.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = ["id", "text", "url", "dump", "date", "language", "language_score", "token_count"]
        pq.write_table(pa.Table.from_batches(_installed()).select(columns), path, compression="zstd")
    return path.parent


def texts_of(folder: Path, number: int, seed: int) -> list[str]:
    """Documents of mixed length, drawn over all Parquet files of a folder, in random order."""
    table = pa.concat_tables(
        pq.read_table(path, columns=["text"]) for path in sorted(folder.rglob("*.parquet"))
    )
    rows = np.random.default_rng(seed).permutation(table.num_rows)[:number]
    texts: list[str] = table.column("text").take(pa.array(rows)).to_pylist()
    return texts


def _installed() -> list[pa.RecordBatch]:
    from datamask_pipeline.sources.installed import InstalledConfig, InstalledSource

    source = InstalledSource(InstalledConfig())
    return [
        batch.documents
        for crawl in source.crawls()
        for shard in source.shards(crawl)
        for batch in source.read(crawl, shard, batch_rows=1024)
    ]


def block(base: Base, num_documents: int, seed: int) -> tuple[NDArray[np.float16], NDArray[np.float64]]:
    """Embeddings (N, D) in float16 and a quality score (N,) of one seed."""
    draws = torch.Generator().manual_seed(seed)
    if num_documents <= len(base.vectors_MD):
        index_N = torch.randperm(len(base.vectors_MD), generator=draws)[:num_documents].numpy()
        embeddings_ND = base.vectors_MD[index_N]
        if base.quality_M is not None:
            return embeddings_ND, base.quality_M[index_N]
    else:
        embeddings_ND = np.empty((num_documents, base.vectors_MD.shape[1]), dtype=np.float16)
        fill(embeddings_ND, base, seed)
    return embeddings_ND, drawn_quality(embeddings_ND, seed)


def clustered(
    num_documents: int, seed: int, dimensions: int = 768
) -> tuple[NDArray[np.float16], NDArray[np.float64]]:
    """Embeddings (N, D) in float16 around 500 centres, and a quality score (N,): see `SPREAD`, `COPIED` and `SHIFT`."""
    draws = torch.Generator().manual_seed(seed)
    centres_CD = torch.nn.functional.normalize(torch.randn(CENTRES, dimensions, generator=draws))
    of_N = torch.randint(CENTRES, (num_documents,), generator=draws)
    rows_ND = torch.randn(num_documents, dimensions, generator=draws) * (SPREAD / dimensions**0.5)
    rows_ND += centres_CD[of_N]
    num_copies = round(COPIED * num_documents)
    source_n = torch.randint(num_copies, num_documents, (num_copies,), generator=draws)
    shifts_nD = torch.randn(num_copies, dimensions, generator=draws) * (SHIFT / dimensions**0.5)
    rows_ND[:num_copies] = rows_ND[source_n] + shifts_nD
    embeddings_ND = _unit_half(rows_ND)
    return embeddings_ND, drawn_quality(embeddings_ND, seed)


def fill(embeddings_ND: NDArray[np.float16], base: Base, seed: int) -> None:
    """Writes points around the real vectors, chunk by chunk, into an array or a map on disk."""
    real_MD = torch.from_numpy(base.vectors_MD.copy()).float()
    near_Mk = _neighbours(real_MD)
    for start in range(0, len(embeddings_ND), CHUNK):
        draws = torch.Generator().manual_seed(seed * 1_000_003 + start)
        size = min(CHUNK, len(embeddings_ND) - start)
        first_n = torch.randint(len(real_MD), (size,), generator=draws)
        second_n = near_Mk[first_n, torch.randint(NEIGHBOURS, (size,), generator=draws)]
        share_n1 = torch.rand(size, 1, generator=draws) / 2
        noise_nD = torch.randn(size, real_MD.shape[1], generator=draws) * (NOISE / real_MD.shape[1] ** 0.5)
        points_nD = (1 - share_n1) * real_MD[first_n] + share_n1 * real_MD[second_n] + noise_nD
        embeddings_ND[start : start + size] = _unit_half(points_nD)


def drawn_quality(embeddings_ND: NDArray[np.float16], seed: int) -> NDArray[np.float64]:
    """A seeded direction of the embedding, standardised, plus standard normal noise: see `SIGNAL`."""
    draws = np.random.default_rng(seed)
    direction_D = draws.standard_normal(embeddings_ND.shape[1]).astype(np.float32)
    along_N = np.concatenate(
        [
            embeddings_ND[start : start + CHUNK].astype(np.float32) @ direction_D
            for start in range(0, len(embeddings_ND), CHUNK)
        ]
    ).astype(np.float64)
    along_N = (along_N - along_N.mean()) / along_N.std()
    return SIGNAL**0.5 * along_N + (1 - SIGNAL) ** 0.5 * draws.standard_normal(len(embeddings_ND))


def _neighbours(real_MD: Tensor) -> Tensor:
    parts = [
        (part_mD @ real_MD.T).topk(NEIGHBOURS + 1, dim=1).indices[:, 1:]
        for part_mD in torch.split(real_MD, 1024)
    ]
    return torch.cat(parts)


def _unit_half(rows_nD: Tensor) -> NDArray[np.float16]:
    unit_nD: NDArray[np.float16] = torch.nn.functional.normalize(rows_nD.float()).half().numpy()
    return unit_nD
