"""A thousand documents in files, cut into shards in any way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from datamask_pipeline.selection.shards.source import Shard

NUM_ROWS, DIM = 1100, 12
Cut = Callable[..., list[Shard]]


@pytest.fixture(scope="session")
def columns() -> dict[str, Any]:
    draws = np.random.default_rng(5)
    kinds = draws.integers(0, 6, NUM_ROWS)
    kinds.sort()  # shards differ in kind
    vectors = draws.standard_normal((6, DIM))[kinds] + draws.standard_normal((NUM_ROWS, DIM))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    quality = draws.random(NUM_ROWS) + 0.1 * kinds
    quality[200:230] = quality[900:930] = 0.7  # equal ones
    return {
        "vectors": vectors.astype(np.float32),
        "quality": quality,
        "token_counts": draws.integers(5, 90, NUM_ROWS).astype(np.float64),
        "groups": np.array([f"crawl-{kind % 3}" for kind in draws.permutation(kinds)]),
    }


@pytest.fixture(scope="session")
def cut(columns: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Cut:
    """Shards that begin at these documents, listed in this order."""
    folder = tmp_path_factory.mktemp("shards")
    for name, values in columns.items():
        np.save(folder / f"{name}.npy", values)

    def shards(starts: Sequence[int] = (0,), order: Sequence[int] | None = None) -> list[Shard]:
        ends = [*starts[1:], NUM_ROWS]
        found = [
            Shard(
                vectors=folder / "vectors.npy",
                quality={"quality": folder / "quality.npy"},
                token_counts=folder / "token_counts.npy",
                groups=folder / "groups.npy",
                start=start,
                num_rows=end - start,
                first=start,
            )
            for start, end in zip(starts, ends, strict=True)
        ]
        return [found[place] for place in order] if order is not None else found

    return shards


@pytest.fixture(scope="session")
def budgets(columns: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        "documents": {"ratio": 0.1},
        "tokens": {"num_tokens": int(columns["token_counts"].sum() * 0.1)},
        "quotas": {"ratio": 0.1, "quotas": {"crawl-0": 0.5, "crawl-1": 0.2, "*": 0.3}},
    }
