"""Two processes on one GPU choose what one does, bit for bit. Needs a CUDA device."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from datamask_pipeline.selection.api import select_documents
from datamask_pipeline.selection.shards.api import select_over_shards
from datamask_pipeline.selection.shards.source import Shard

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

NUM_ROWS, PARTS = 24_000, 4


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[Shard]:
    folder, draws = tmp_path_factory.mktemp("shards"), np.random.default_rng(0)
    rows = draws.normal(size=(NUM_ROWS, 96)) + 0.3
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    np.save(folder / "vectors.npy", rows.astype(np.float16))
    np.save(folder / "quality.npy", draws.random(NUM_ROWS))
    np.save(folder / "token_counts.npy", draws.integers(20, 900, size=NUM_ROWS))
    np.save(folder / "groups.npy", draws.choice(["a", "b"], size=NUM_ROWS))
    size = NUM_ROWS // PARTS
    return [
        Shard(
            vectors=folder / "vectors.npy",
            quality={"quality": folder / "quality.npy"},
            token_counts=folder / "token_counts.npy",
            groups=folder / "groups.npy",
            start=start,
            num_rows=size,
            first=start,
        )
        for start in range(0, NUM_ROWS, size)
    ]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("metric", ["Pair_simi", "DiSF_uncentred"])
@pytest.mark.parametrize(
    "budget",
    [{"ratio": 0.1}, {"num_tokens": 1_000_000}, {"ratio": 0.1, "quotas": {"a": 0.7, "b": 0.3}}],
    ids=["documents", "tokens", "quotas"],
)
def test_two_processes_choose_what_one_does(
    budget: dict[str, Any], metric: str, dtype: str, shards: list[Shard], tmp_path: Path
) -> None:
    settings = {"diversity": metric, "dtype": dtype, "device": "cuda:0", **budget}
    one = select_over_shards(shards, tmp_path / "one", workers=1, engine="here", **settings)
    two = select_over_shards(shards[::-1], tmp_path / "two", workers=2, **settings)
    for name in ("mask", "probability", "quality_marginal", "diversity_marginal"):
        assert (one.column(name) == two.column(name)).all(), name
    assert one.objective == two.objective
    assert one.certificate == two.certificate


@pytest.mark.parametrize("metric", ["Pair_simi", "DiSF_uncentred"])
def test_they_reach_what_one_block_does(metric: str, shards: list[Shard], tmp_path: Path) -> None:
    settings = {"diversity": metric, "ratio": 0.1, "dtype": "float32", "device": "cuda:0"}
    over = select_over_shards(shards, tmp_path / "over", workers=2, **settings)
    vectors, quality = np.load(shards[0].vectors), np.load(shards[0].quality["quality"])
    alone = select_documents(vectors, quality, normalisation_constants=over.normalisation, **settings)
    distance = alone.objective.value - alone.objective.random
    assert over.objective.value == pytest.approx(alone.objective.value, abs=1e-3 * distance)
