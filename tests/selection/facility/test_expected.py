"""What random masks cover on average: against every mask, against drawn ones, and through the engine's scale."""

from itertools import combinations

import numpy as np
import pytest
import torch

from datamask_pipeline import select_documents
from datamask_pipeline.selection.facility import expected as module
from datamask_pipeline.selection.facility.evaluate import coverage_of
from datamask_pipeline.selection.facility.expected import expected_coverage, sampled_references
from datamask_pipeline.selection.parallel import Workers


def unit_rows(num_rows: int, dim: int, seed: int) -> torch.Tensor:
    rows_ND = torch.randn(num_rows, dim, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(rows_ND + 0.3)


def expected(rows_ND, groups_N, limits, dtype=torch.float32):
    with Workers(1) as workers:
        return expected_coverage(rows_ND, torch.arange(len(rows_ND)), groups_N, limits, workers, dtype)


def mean_over(rows_ND, masks) -> float:
    similar_NN = (rows_ND.double() @ rows_ND.double().T).clamp(min=0)
    return float(np.mean([float(similar_NN[:, list(mask)].amax(1).mean()) for mask in masks]))


@pytest.mark.parametrize("limits", [(3,), (2, 3), (0, 2), (7, 1), (7, 5)])
def test_the_mean_over_every_mask(limits):
    rows_ND = unit_rows(12, 5, seed=len(limits))
    groups_N = torch.zeros(12, dtype=torch.int64)
    if len(limits) == 1:
        masks = combinations(range(12), 3)
    else:
        groups_N[7:] = 1
        masks = (
            left + right
            for left in combinations(range(7), limits[0])
            for right in combinations(range(7, 12), limits[1])
        )
    assert expected(rows_ND, groups_N, limits) == pytest.approx(mean_over(rows_ND, masks), abs=1e-6)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_mean_over_many_drawn_masks(dtype):
    rows_ND, groups_N = unit_rows(800, 24, seed=1), torch.zeros(800, dtype=torch.int64)
    draws = torch.Generator().manual_seed(0)
    with Workers(1) as workers:
        values = [
            coverage_of(
                rows_ND,
                torch.arange(800),
                torch.randperm(800, generator=draws)[:80],
                workers,
                torch.float32,
            ).mean
            for _ in range(200)
        ]
    error = np.std(values) / len(values) ** 0.5
    assert abs(expected(rows_ND, groups_N, (80,), dtype) - np.mean(values)) < 3.5 * error


def test_a_group_of_which_masks_hold_few():
    """Its lists are of its own documents, and ended before a mask held one: the mean came out a range or more too high."""
    draws = np.random.default_rng(0)
    groups_N = torch.arange(2).repeat_interleave(100)
    centres_GD = torch.from_numpy(draws.standard_normal((2, 8)))
    rows_ND = centres_GD[groups_N] + torch.from_numpy(draws.standard_normal((200, 8)))
    rows_ND = torch.nn.functional.normalize(rows_ND).float()
    masks = [
        np.concatenate([draws.choice(100, 2, replace=False), 100 + draws.choice(100, 60, replace=False)])
        for _ in range(400)
    ]
    values = [mean_over(rows_ND, [mask]) for mask in masks]
    error = np.std(values) / len(values) ** 0.5
    assert abs(expected(rows_ND, groups_N, (2, 60)) - np.mean(values)) < 3.5 * error


def test_masks_of_very_few_documents_are_drawn_instead(monkeypatch):
    rows_ND = unit_rows(700, 8, seed=2)
    monkeypatch.setattr(module, "ENTRIES", 200_000)
    assert expected(rows_ND, torch.zeros(700, dtype=torch.int64), (7,)) is None
    assert expected(rows_ND, torch.arange(700) % 2, (3, 200)) is None


def test_many_references_are_sampled_alike_in_every_run(monkeypatch):
    assert len(sampled_references(torch.arange(1000), 1000)) == 1000
    monkeypatch.setattr(module, "PAIRS", 200_000)
    monkeypatch.setattr(module, "FEWEST", 50)
    some_r = sampled_references(torch.arange(1000), 1000)
    assert len(some_r) == 200
    assert torch.equal(some_r, sampled_references(torch.arange(1000), 1000))
    assert bool((some_r.diff() > 0).all())


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"ratio": 0.1}, {"ratio": 0.01}, {"num_tokens": 6000}])
def test_the_zero_of_the_scale_hardly_moves_with_the_seed(settings):
    rows_ND = unit_rows(600, 32, seed=3).numpy()
    quality = np.random.default_rng(0).standard_normal(600)
    tokens = np.random.default_rng(1).integers(50, 150, size=600)
    shared = {"diversity": "Facility", "policy": "random", "token_counts": tokens, "dtype": "float32"}
    scales = [
        select_documents(rows_ND, quality, seed=seed, **shared, **settings).normalisation["Facility"]
        for seed in range(4)
    ]
    zeros, widths = np.array([zero for zero, _ in scales]), np.array([one - zero for zero, one in scales])
    room = 1e-9 if settings == {"ratio": 0.1} else 0.01
    assert zeros.std() <= room * widths.mean()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("quotas", [{"a": 1.0, "z": 0.0}, {"a": 0.999, "z": 0.001}, {"z": 0.0, "*": 1.0}])
def test_a_quota_of_a_group_that_no_document_has(quotas):
    rows_ND, quality = unit_rows(80, 5, seed=0).numpy(), np.linspace(0, 1, 80)
    result = select_documents(
        rows_ND,
        quality,
        groups=["a"] * 80,
        quotas=quotas,
        num_documents=20,
        diversity="Facility",
        num_workers=1,
    )
    assert result.mask.sum() == 20


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.01, 0.02, 1.0])
def test_half_precision_is_not_asked_who_is_more_alike_in_a_narrow_cone(sigma):
    """There it tells nobody apart: the mean of random masks came out half a range too low."""
    draws = np.random.default_rng(2)
    rows = np.eye(8)[0] + sigma * draws.standard_normal((200, 8))
    unit = torch.nn.functional.normalize(torch.from_numpy(rows))
    masks = [draws.choice(200, 40, replace=False) for _ in range(300)]
    settings = {"num_documents": 40, "diversity": "Facility", "num_workers": 1, "dtype": "bfloat16"}
    result = select_documents(rows.astype(np.float32), draws.random(200), **settings)
    zero, one = result.normalisation["Facility"]
    assert abs(zero - mean_over(unit, masks)) < 0.1 * (one - zero)
    assert result.record["config"]["dtype"] == ("bfloat16" if sigma == 1.0 else "float32")
