"""Nothing of a selection mixes tensors of two devices, whatever the metric, the policy and the budget."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import second_device
import torch
from numpy.typing import NDArray

from datamask_pipeline import frontier, select_documents
from datamask_pipeline.families import METRICS, POLICIES
from datamask_pipeline.selection.facility import choose, dense
from datamask_pipeline.selection.moments import band
from datamask_pipeline.selection.shards.api import select_over_shards
from datamask_pipeline.selection.shards.source import Shard

Columns = dict[str, Any]
SHORT: dict[str, dict[str, Any]] = {
    "datamask": {"num_kicks": 1, "num_restarts": 1},
    "policy_gradient": {"num_epochs": 3},
}
BUDGETS: dict[str, dict[str, Any]] = {
    "documents": {"num_documents": 20},
    "tokens": {"num_tokens": 3_000},
    "quotas": {"num_documents": 20, "quotas": {"a": 0.5, "b": 0.5}},
}
SPECIAL: dict[str, dict[str, Any]] = {
    "copies": {"max_copies": 2},
    "pruned": {"quality_pruning": 0.3},
    "outliers": {"outlier_deviations": 3.0},
    "quality alone": {"lamb": 1.0},
    "bfloat16": {"dtype": "bfloat16"},
}


@pytest.fixture
def device() -> Iterator[str]:
    with second_device.second_device():
        yield second_device.NAME


def block(size: int = 200, dim: int = 12) -> tuple[NDArray[np.float32], NDArray[np.float64], Columns]:
    draws = np.random.default_rng(0)
    rows = (
        draws.normal(size=(8, dim))[draws.integers(8, size=size)] + 0.6 * draws.normal(size=(size, dim)) + 0.4
    )
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    groups = draws.choice(["a", "b"], size=size).tolist()
    return (
        rows.astype(np.float32),
        draws.random(size),
        {"token_counts": draws.integers(20, 400, size=size), "groups": groups},
    )


def same(device: str, rows: Any, quality: Any, metric: str, **settings: Any) -> None:
    """Of both devices, but for what another order of sums makes of Facility."""
    settings = {"diversity": metric, "dtype": "float32", **settings}
    here = select_documents(rows, quality, device="cpu", **settings)
    settings["normalisation_constants"] = here.normalisation
    there = select_documents(rows, quality, device=device, **settings)
    distance = here.objective.value - here.objective.random
    assert abs(there.objective.value - here.objective.value) <= (
        5e-3 if metric == "Facility" else 1e-6
    ) * abs(distance)
    assert there.record["device"] == device


def test_the_device_refuses_what_a_gpu_refuses(device: str) -> None:
    rows_ND = torch.randn(5, 3).to(device)
    assert (rows_ND @ rows_ND.T).device == torch.device(device)
    assert (rows_ND @ rows_ND.T).cpu().device == torch.device("cpu")
    rows_ND[torch.tensor([0, 1])] = 0
    assert float(rows_ND[:2].abs().sum()) == 0
    for wrong in (
        lambda: rows_ND @ torch.randn(3, 3),
        lambda: rows_ND + torch.ones(3),
        lambda: torch.randn(5)[rows_ND[:, 0] > 0],
    ):
        with pytest.raises(RuntimeError, match="two devices"):
            wrong()
    with pytest.raises(TypeError, match="no array"):
        rows_ND.numpy()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("metric", METRICS.names())
@pytest.mark.parametrize("policy", POLICIES.names())
def test_every_policy_of_every_metric(policy: str, metric: str, device: str) -> None:
    rows, quality, _ = block()
    if policy == "partitioned_greedy":
        metric = "Pair_graph"
    same(device, rows, quality, metric, policy=policy, num_documents=20, **SHORT.get(policy, {}))


def test_a_mixture_with_facility(device: str) -> None:
    rows, quality, _ = block()
    settings = {"diversity": {"Facility": 1.0, "LogDet": 1.0}, "num_documents": 20, **SHORT["datamask"]}
    here = select_documents(rows, quality, device="cpu", dtype="float32", **settings)
    settings["normalisation_constants"] = here.normalisation
    there = select_documents(rows, quality, device=device, dtype="float32", **settings)
    assert there.objective.value == pytest.approx(here.objective.value, abs=5e-3)
    assert there.record["device"] == device


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("metric", METRICS.names())
@pytest.mark.parametrize("budget", BUDGETS)
def test_every_budget_of_every_metric(budget: str, metric: str, device: str) -> None:
    rows, quality, columns = block(100)
    if budget != "quotas":
        del columns["groups"]
    same(device, rows, quality, metric, **BUDGETS[budget], **SHORT["datamask"], **columns)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("metric", ["Pair_simi", "DiSF_uncentred", "Facility"])
@pytest.mark.parametrize("special", SPECIAL)
def test_further_settings(special: str, metric: str, device: str) -> None:
    rows, quality, _ = block()
    settings = {"num_documents": 20, **SHORT["datamask"], **SPECIAL[special]}
    same(device, 3 * rows, quality, metric, **settings)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("estimator", ["expected", "counterfactual", "group_relative"])
def test_every_estimator(estimator: str, device: str) -> None:
    rows, quality, _ = block()
    settings = {"policy": "policy_gradient", "estimator": estimator, "num_epochs": 3, "num_documents": 20}
    same(device, rows, quality, "Pair_simi", **settings)


@pytest.mark.slow
def test_what_is_held_and_what_is_shown(device: str) -> None:
    rows, quality, _ = block()
    settings = {"num_documents": 20, **SHORT["datamask"], "target": rows[:3], "avoid": rows[5:9]}
    held = select_documents(rows[:80], quality[:80], diversity="Pair_simi", dtype="float32", **settings).held
    same(device, rows[80:], quality[80:], "Pair_simi", given=held, **settings)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("metric", ["Pair_simi", "DiSF_uncentred", "Facility"])
def test_lists_from_clusters_and_learning_in_bands(
    metric: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "MOST_EXACT", 1_000)
    monkeypatch.setattr(band, "LEAST_BAND", 256)
    monkeypatch.setattr(band, "LEAST_SELECTED", 100)
    rows, quality, _ = block(1_500)
    same(device, rows, quality, metric, ratio=0.1)


@pytest.mark.slow
def test_the_record_names_the_same_vectors_wherever_they_lay(device: str) -> None:
    """Read in larger chunks there."""
    rows, quality, _ = block(300)
    settings = {"diversity": "Pair_simi", "num_documents": 20, "chunk_rows": 64, "policy": "quality_topk"}
    here, there, lying = (
        select_documents(given, quality, device=where, **settings).record["embeddings_digest"]
        for given, where in ((rows, "cpu"), (rows, device), (torch.from_numpy(rows).to(device), device))
    )
    assert here == there == lying


def test_greedy_without_a_matrix_of_similarities(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "MATRIX_BYTES", 0)
    rows, quality, _ = block()
    same(device, rows, quality, "Facility", policy="greedy", num_documents=20)


@pytest.mark.slow
def test_a_frontier(device: str) -> None:
    rows, quality, _ = block()
    settings = {"diversity": "DiSF_uncentred", "num_documents": 20, "dtype": "float32", **SHORT["datamask"]}
    here, there = (
        frontier(rows, quality, lambs=[0.2, 0.8], device=name, **settings).table()["objective"].to_pylist()
        for name in ("cpu", device)
    )
    assert here == there


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("metric", [name for name in METRICS.names() if name != "Pair_graph"])
def test_over_shards(metric: str, device: str, tmp_path: Path) -> None:
    rows, quality, _ = block(300)
    np.save(tmp_path / "vectors.npy", rows.astype(np.float16))
    np.save(tmp_path / "quality.npy", quality)
    shards = [
        Shard(
            vectors=tmp_path / "vectors.npy",
            quality={"quality": tmp_path / "quality.npy"},
            start=start,
            num_rows=100,
            first=start,
        )
        for start in range(0, 300, 100)
    ]
    found = [
        select_over_shards(
            shards,
            tmp_path / name[:4],
            engine="here",
            diversity=metric,
            ratio=0.1,
            dtype="float32",
            device=name,
        )
        for name in ("cpu", device)
    ]
    assert found[1].objective.value == pytest.approx(
        found[0].objective.value, abs=5e-3 if metric == "Facility" else 1e-12
    )
