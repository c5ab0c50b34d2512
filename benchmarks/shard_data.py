"""Shards on disk that differ in kind, drawn around real vectors. Knows no engine.

Shape suffixes: N documents of a shard, M real vectors, D dimensions, C kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.data import SIGNAL, Base, fill
from datamask_pipeline import Shard
from datamask_pipeline.selection.sharded import ShardedVectors

KINDS, EVENNESS, DRAWN = 12, 0.3, 0.6
"""Kinds of real vectors; how even a shard's mix of them is (of a Dirichlet distribution); share of the vectors in a mix."""
MOST_VECTORS = 4_000
"""Real vectors that are drawn around: the nearest of more take longer to find than all else."""
TOKENS = (32, 2_048)
"""A document's tokens: drawn evenly on a logarithmic scale."""


def reduced(base: Base, dimensions: int) -> Base:
    """The real vectors along their main directions, brought back to unit norm."""
    real_MD = base.vectors_MD.astype(np.float32)
    _, directions_DD = np.linalg.eigh(real_MD.T @ real_MD)
    kept_MD = torch.from_numpy(real_MD @ directions_DD[:, -dimensions:])
    vectors_MD = torch.nn.functional.normalize(kept_MD).half().numpy()
    return replace(base, vectors_MD=vectors_MD, source=f"{base.source}, {dimensions} main directions")


def write_shards(folder: Path, base: Base, num_shards: int, shard_rows: int, seed: int) -> list[Shard]:
    """Shards of vectors in float16 with a quality and tokens; each with a mix of kinds of its own.

    Quality is half a direction of the vectors, half noise, on one scale for all shards.
    """
    folder.mkdir(parents=True, exist_ok=True)
    draws = np.random.default_rng(seed)
    base = replace(base, vectors_MD=draws.permutation(base.vectors_MD)[:MOST_VECTORS])
    real_MD = base.vectors_MD.astype(np.float32)
    centres_CD = real_MD[draws.choice(len(real_MD), KINDS, replace=False)]
    kind_M = np.argmax(real_MD @ centres_CD.T, axis=1)
    direction_D = draws.standard_normal(real_MD.shape[1]).astype(np.float32)
    along_M = real_MD @ direction_D
    return [
        _shard(
            folder,
            base,
            (number, shard_rows, seed),
            draws.dirichlet(np.full(KINDS, EVENNESS))[kind_M],
            direction_D / along_M.std(),
        )
        for number in range(num_shards)
    ]


def _shard(
    folder: Path,
    base: Base,
    place: tuple[int, int, int],
    mix_M: NDArray[np.float64],
    along_D: NDArray[np.float32],
) -> Shard:
    number, shard_rows, seed = place
    shard = _named(folder, number)
    assert shard.token_counts is not None
    vectors, quality, tokens = shard.vectors, shard.quality["quality"], shard.token_counts
    draws = np.random.default_rng((seed, number))
    some = draws.choice(len(mix_M), round(DRAWN * len(mix_M)), p=mix_M / mix_M.sum())
    shape = (shard_rows, base.vectors_MD.shape[1])
    vectors_ND = np.lib.format.open_memmap(vectors, mode="w+", dtype=np.float16, shape=shape)
    fill(vectors_ND, replace(base, vectors_MD=base.vectors_MD[some]), seed * 1000 + number)
    vectors_ND.flush()
    along_N = np.concatenate([part.astype(np.float32) @ along_D for part in np.array_split(vectors_ND, 64)])
    noise_N = draws.standard_normal(shard_rows)
    np.save(quality, SIGNAL**0.5 * along_N.astype(np.float64) + (1 - SIGNAL) ** 0.5 * noise_N)
    low, high = TOKENS
    np.save(tokens, np.rint(low * (high / low) ** draws.random(shard_rows)))
    return shard


def shards_in(folder: Path) -> list[Shard]:
    """Those that were written there."""
    return [_named(folder, int(file.name[:3])) for file in sorted(folder.glob("*-vectors.npy"))]


def _named(folder: Path, number: int) -> Shard:
    files = {name: folder / f"{number:03d}-{name}.npy" for name in ("vectors", "quality", "tokens")}
    return Shard(
        vectors=files["vectors"], quality={"quality": files["quality"]}, token_counts=files["tokens"]
    )


def in_one(shards: Sequence[Shard]) -> tuple[ShardedVectors, NDArray[np.float64]]:
    """The shards' vectors as one array on disk, and their quality."""
    lengths = [len(np.load(shard.vectors, mmap_mode="r")) for shard in shards]
    vectors = ShardedVectors(
        [shard.vectors for shard in shards],
        np.repeat(np.arange(len(shards)), lengths),
        np.concatenate([np.arange(length) for length in lengths]),
    )
    return vectors, np.concatenate([np.load(shard.quality["quality"]) for shard in shards])
