"""Facility over shards: the same bytes from any processes, near one block's mask, and a bound of every mask of the union."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.api import select_documents
from datamask_pipeline.selection.given import Given
from datamask_pipeline.selection.shards import coverage
from datamask_pipeline.selection.shards.api import over_shards, select_over_shards
from datamask_pipeline.selection.shards.source import Shard

SETTINGS = {"chunk_rows": 64, "seed": 3, "diversity": "Facility"}


@pytest.fixture
def small_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "REGION_DOCUMENTS", 200)
    monkeypatch.setattr(coverage, "MOST_DOCUMENTS", 260)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("small_regions")
@pytest.mark.parametrize("kind", ["documents", "tokens", "quotas"])
def test_no_cut_order_or_process_changes_a_byte(
    kind: str, cut: Any, columns: dict[str, Any], budgets: dict[str, Any], tmp_path: Path
) -> None:
    wanted = SETTINGS | budgets[kind] | ({} if kind == "quotas" else {"normalisation": "none"})
    one = select_over_shards(cut(), tmp_path / "one", engine="here", **wanted)
    ways = [(cut((0, 5, 300, 901), (2, 0, 3, 1)), {"workers": 4, "engine": "here"})]
    if kind == "documents":
        ways.append((cut((0, 100), (1, 0)), {"workers": 2, "engine": "processes"}))
    for number, (shards, how) in enumerate(ways):
        other = select_over_shards(shards, tmp_path / str(number), **how, **wanted)
        assert bytes_of(other.folder) == bytes_of(one.folder)
        assert (other.objective, other.certificate, other.record) == (
            one.objective,
            one.certificate,
            one.record,
        )
    mask = one.column("mask")
    assert one.record["learner"]["regions"] > 3
    if kind == "tokens":
        left = wanted["num_tokens"] - columns["token_counts"][mask].sum()
        assert 0 <= left < columns["token_counts"][~mask].min()
        assert one.certificate.bound is None
        return
    assert mask.sum() == 110
    if kind == "quotas":
        groups, counts = np.unique(columns["groups"][mask], return_counts=True)
        assert dict(zip(groups.tolist(), counts.tolist(), strict=True)) == {
            "crawl-0": 55,
            "crawl-1": 22,
            "crawl-2": 33,
        }


@pytest.mark.slow
@pytest.mark.usefixtures("small_regions")
def test_near_one_block_and_its_bound_holds_there(
    cut: Any, columns: dict[str, Any], budgets: dict[str, Any], tmp_path: Path
) -> None:
    alone = select_documents(columns["vectors"], columns["quality"], ratio=0.1, **SETTINGS)
    wanted = {"ratio": 0.1, **SETTINGS, "normalisation_constants": alone.normalisation}
    found = select_over_shards(cut((0, 700)), tmp_path, workers=2, engine="here", **wanted)
    distance = alone.objective.value - alone.objective.random
    assert found.objective.value >= alone.objective.value - 0.1 * distance
    assert found.certificate.bound is not None
    assert found.certificate.bound >= alone.objective.value
    assert found.certificate.bound <= alone.objective.value + distance
    mask = np.array(found.column("mask"))
    similar = columns["vectors"].astype(np.float64) @ columns["vectors"][mask].T.astype(np.float64)
    covered = np.clip(similar.max(1), 0, None).mean()
    assert covered - 0.01 * np.ptp(alone.normalisation["Facility"]) <= found.objective.raw["Facility"]
    assert found.objective.raw["Facility"] <= covered + 1e-6
    read = found.in_memory()
    assert read.held is None
    assert set(read.certified_at) == {"dual"}
    assert {"below threshold", "above threshold"} <= set(read.reasons)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [4, 11])
@pytest.mark.parametrize("seed", range(4))
def test_the_bound_holds_for_every_mask(
    size: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coverage, "REGION_DOCUMENTS", size)
    monkeypatch.setattr(coverage, "MOST_DOCUMENTS", size)
    draws = np.random.default_rng(seed)
    vectors = draws.standard_normal((11, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    quality = draws.random(11)
    np.save(tmp_path / "v.npy", vectors.astype(np.float32))
    np.save(tmp_path / "q.npy", quality)
    shard = Shard(vectors=tmp_path / "v.npy", quality={"quality": tmp_path / "q.npy"})
    wanted = {"num_documents": 4, "normalisation": "none", "lamb": 0.3, "diversity": "Facility"}
    found = select_over_shards([shard], tmp_path / "out", **wanted)
    similar = np.clip(vectors @ vectors.T, 0, None)
    values = [
        0.3 * quality[list(mask)].mean() + 0.7 * similar[:, list(mask)].max(1).mean()
        for mask in itertools.combinations(range(11), 4)
    ]
    assert found.certificate.bound is not None
    assert found.certificate.gap is not None
    assert max(values) <= found.certificate.bound + 1e-6
    assert found.objective.value <= max(values) + 1e-6
    if size == 11:  # one region: what one block finds, and an exact dual
        assert found.record["learner"]["missed_excess"] == 0
        assert found.objective.value >= max(values) - 0.1 * (max(values) - np.mean(values))


def test_copies_of_one_document_are_chosen_by_lot(tmp_path: Path) -> None:
    vectors = np.tile(np.eye(8, dtype=np.float32), (40, 1))
    np.save(tmp_path / "v.npy", vectors)
    np.save(tmp_path / "q.npy", np.zeros(320))
    shard = Shard(vectors=tmp_path / "v.npy", quality={"quality": tmp_path / "q.npy"})
    masks = [
        select_over_shards(
            [shard],
            tmp_path / str(seed),
            num_documents=8,
            normalisation="none",
            diversity="Facility",
            seed=seed,
        ).in_memory()
        for seed in range(3)
    ]
    assert all(found.objective.raw["Facility"] == 1.0 for found in masks)
    assert len({found.mask.tobytes() for found in masks}) == 3


def test_what_cannot_be_kept_is_refused(cut: Any, columns: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="or Facility alone"):
        over_shards(None, {"diversity": {"Facility": 1.0, "Pair_simi": 1.0}})
    landmarks = {"Facility": {"exact_rows": 500, "num_landmarks": 100}}
    with pytest.raises(ConfigurationError, match=r"leave out diversity_options\.Facility"):
        over_shards(None, {"diversity": "Facility", "diversity_options": landmarks})
    held = Given.of(columns["vectors"][:40], {"quality": columns["quality"][:40]})
    with pytest.raises(ConfigurationError, match="none of moments"):
        select_over_shards(cut(), tmp_path, engine="here", given=held, **SETTINGS)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(4))
def test_few_documents_are_exchanged_as_in_one_process(seed: int, tmp_path: Path) -> None:
    """A region that is small enough is exchanged from drawn masks too: masks ended up to .15 below plain greedy."""
    draws = np.random.default_rng(seed)
    vectors = draws.standard_normal((200, 8))
    vectors[100:] = -vectors[:100]
    quality = draws.random(200)
    for name, values in (("vectors", vectors.astype(np.float32)), ("quality", quality)):
        np.save(tmp_path / f"{name}.npy", values)
    settings = {"diversity": "Facility", "num_documents": 4, "lamb": 0.1}
    alone = select_documents(vectors, quality, num_workers=1, **settings)
    shard = Shard(vectors=tmp_path / "vectors.npy", quality={"quality": tmp_path / "quality.npy"})
    found = select_over_shards(
        [shard],
        tmp_path / "masks",
        engine="here",
        normalisation_constants=alone.normalisation,
        **settings,
    )
    assert found.objective.value >= alone.objective.value - 0.005
