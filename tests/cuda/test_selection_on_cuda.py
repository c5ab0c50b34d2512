"""What the processor selects, a GPU selects: to a hundred-thousandth of the distance from random. Needs a CUDA device.

Both on the processor's scale. Facility ends at other exchanges of about the same worth where products are rounded otherwise.
"""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from datamask_pipeline import select_documents
from datamask_pipeline.families import METRICS, POLICIES
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.result import SelectionResult

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

NAMES = ["Pair_simi", "DiSF_uncentred", "DiSF", "LogDet", "Vendi", "Facility", "Pair_graph"]
SETTINGS: dict[str, dict[str, Any]] = {
    "datamask": {"num_kicks": 1, "num_restarts": 1},
    "policy_gradient": {"num_epochs": 20},
}
BUDGETS: dict[str, dict[str, Any]] = {
    "documents": {"num_documents": 60},
    "tokens": {"num_tokens": 8_000},
    "quotas": {"num_documents": 60, "quotas": {"a": 0.5, "b": 0.5}},
}


def block(
    size: int, dim: int, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.float64], dict[str, Any]]:
    """Vectors in eight clusters, a tenth of them near-copies; scores; token counts and groups."""
    draws = np.random.default_rng(seed)
    centres = draws.normal(size=(8, dim)) + 0.5
    rows = centres[draws.integers(8, size=size)] + 0.6 * draws.normal(size=(size, dim))
    rows[: size // 10] = rows[-(size // 10) :] + 1e-3 * draws.normal(size=(size // 10, dim))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    columns = {
        "token_counts": draws.integers(20, 400, size=size),
        "groups": draws.choice(["a", "b"], size=size).tolist(),
    }
    return rows.astype(np.float32), draws.random(size), columns


def both(size: int, dim: int, **settings: Any) -> tuple[SelectionResult, SelectionResult]:
    """The processor's selection and the device's."""
    rows, quality, columns = block(size, dim)
    if "quotas" not in settings:
        del columns["groups"]
    settings = {"dtype": "float32", **settings}
    here = select_documents(rows, quality, device="cpu", **settings, **columns)
    settings |= {"normalisation_constants": here.normalisation}
    there = select_documents(rows, quality, device="cuda:0", **settings, **columns)
    return here, there


def tolerance(metric: str, dtype: str = "float32") -> float:
    """Of `difference`."""
    return 5e-3 if dtype == "bfloat16" else 2e-3 if metric == "Facility" else 1e-5


def difference(here: SelectionResult, there: SelectionResult) -> float:
    """Of the objectives, as a share of the distance from random."""
    return abs(there.objective.value - here.objective.value) / (here.objective.value - here.objective.random)


@pytest.mark.parametrize("metric", NAMES)
@pytest.mark.parametrize("policy", POLICIES.names())
def test_every_policy_of_every_metric_ends_at_the_same_objective(policy: str, metric: str) -> None:
    if policy == "partitioned_greedy":
        metric = "Pair_graph"
    here, there = both(600, 32, diversity=metric, policy=policy, num_documents=60, **SETTINGS.get(policy, {}))
    assert difference(here, there) < tolerance(metric)
    assert there.record["device"] == "cuda:0"


@pytest.mark.parametrize("metric", NAMES)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_certificates_of_both_hold_of_both_masks(budget: str, metric: str, dtype: str) -> None:
    here, there = both(500, 48, diversity=metric, dtype=dtype, **BUDGETS[budget], **SETTINGS["datamask"])
    scale = max(here.objective.value, there.objective.value) - here.objective.random
    assert (here.certificate.bound is None) == (there.certificate.bound is None)
    if here.certificate.bound is not None:
        for one in (here, there):
            assert one.certificate.bound >= max(here.objective.value, there.objective.value) - 1e-5 * scale
    assert difference(here, there) < tolerance(metric, dtype)


@pytest.mark.parametrize("metric", NAMES)
def test_marginals_are_the_processors(metric: str) -> None:
    here, there = both(500, 48, diversity=metric, policy="quality_topk", num_documents=60)
    assert (here.mask == there.mask).all()
    for side in ("quality_N", "diversity_N"):
        found, expected = getattr(there.marginals, side), getattr(here.marginals, side)
        np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("metric", ["Pair_simi", "DiSF_uncentred", "Facility"])
def test_large_blocks_and_vectors_that_lie_on_the_device(metric: str) -> None:
    """Learnt in bands, and Facility on lists from clusters."""
    rows, quality, _ = block(40_000, 64)
    on_device = torch.from_numpy(rows).to("cuda:0")
    settings: dict[str, Any] = {"diversity": metric, "ratio": 0.1, "dtype": "float32"}
    found = [select_documents(rows, quality, device="cpu", **settings)]
    settings |= {"normalisation_constants": found[0].normalisation}
    found += [select_documents(one, quality, device="cuda:0", **settings) for one in (rows, on_device)]
    assert (found[1].mask == found[2].mask).all()
    assert difference(found[0], found[1]) < tolerance(metric)
    for one in found:
        assert one.certificate.bound > max(other.objective.value for other in found) - 1e-5


def test_the_scale_is_the_processors() -> None:
    rows, quality, _ = block(600, 32)
    for metric in NAMES:
        settings: dict[str, Any] = {"diversity": metric, "num_documents": 60, "policy": "quality_topk"}
        here, there = (
            select_documents(rows, quality, dtype="float32", device=device, **settings).normalisation
            for device in ("cpu", "cuda:0")
        )
        zero, one = here[metric]
        assert there[metric][0] == pytest.approx(zero, rel=1e-5, abs=1e-7)
        assert there[metric][1] - there[metric][0] == pytest.approx(one - zero, rel=5e-3)


def test_likeness_and_what_is_held() -> None:
    rows, quality, _ = block(500, 48)
    shown = {"target": rows[:3], "avoid": rows[10:13]}
    values = []
    for device in ("cpu", "cuda:0"):
        settings = {"diversity": "Pair_simi", "num_documents": 40, "device": device, "dtype": "float32"}
        first = select_documents(rows[:200], quality[:200], **shown, **settings)
        second = select_documents(rows[200:], quality[200:], given=first.held, **shown, **settings)
        values.append((first.objective.value, second.objective.value, second.certificate.bound))
    assert values[1] == pytest.approx(values[0], abs=2e-5)


def test_all_names_are_tried() -> None:
    assert set(NAMES) == set(METRICS.names())
    assert SelectionConfig(device="cuda:0", ratio=0.1).device == "cuda:0"
