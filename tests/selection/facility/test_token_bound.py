"""Bounds of full masks as they are proved, before the engine raises them to what its own mask reaches."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from datamask_pipeline.selection.facility.evaluate import coverage_of
from datamask_pipeline.selection.facility.nearest import nearest
from datamask_pipeline.selection.facility.tokens import largest_of_means, token_bound
from datamask_pipeline.selection.full_masks import FullMasks
from datamask_pipeline.selection.parallel import Workers


def full_masks(costs_N: NDArray[np.int64], limit: int) -> Iterator[list[int]]:
    """Of two documents at least, beside which none of the others fits."""
    for count in range(2, len(costs_N) + 1):
        for mask in combinations(range(len(costs_N)), count):
            left = limit - costs_N[list(mask)].sum()
            others = np.delete(costs_N, mask)
            if left >= 0 and (not len(others) or others.min() > left):
                yield list(mask)


def drawn(seed: int) -> tuple[np.random.Generator, NDArray[np.int64], int]:
    """Lengths of few documents and a budget that two of them fill, or more."""
    draws = np.random.default_rng(seed)
    size = int(draws.integers(4, 9))
    costs_N = (
        draws.integers(1, 12, size=size)
        if seed % 2
        else np.exp(draws.normal(3, 1, size=size)).astype(int) + 1
    )
    return draws, costs_N, int(max(2 * costs_N.max(), draws.uniform(0.3, 0.9) * costs_N.sum()))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(150))
def test_no_full_mask_has_a_larger_sum_and_mean(seed: int) -> None:
    draws, costs_N, limit = drawn(seed)
    offered_N, quality_N = (
        draws.random(len(costs_N)) * draws.choice([0.0, 0.1, 2.0]),
        draws.normal(size=len(costs_N)),
    )
    full = FullMasks(torch.from_numpy(costs_N).double(), float(limit))
    found, _ = largest_of_means(torch.from_numpy(offered_N), torch.from_numpy(quality_N), full)
    best = max(offered_N[mask].sum() + quality_N[mask].mean() for mask in full_masks(costs_N, limit))
    assert best - 1e-9 <= found
    if not offered_N.any():
        assert found <= full.largest_mean(torch.from_numpy(quality_N)) + 2e-3 * np.ptp(quality_N)


def test_masks_of_less_than_the_mean_quality_are_bounded_too() -> None:
    offered_N, quality_N = (
        torch.tensor([10.0, 10.0, 0.0, 0.0]).double(),
        torch.tensor([0.0, 0.0, 1.0, 1.0]).double(),
    )
    found, _ = largest_of_means(offered_N, quality_N, FullMasks(torch.ones(4).double(), 2.0))
    assert 20 - 1e-9 <= found <= 20 + 2e-3


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(60))
def test_no_full_mask_covers_more(seed: int) -> None:
    draws, costs_N, limit = drawn(seed)
    size, weight = len(costs_N), float(draws.choice([0.0, 0.3, 1.0]))
    rows = draws.normal(size=(size, 3)) + draws.choice([0.0, 1.0])
    rows_ND = torch.from_numpy(rows / np.linalg.norm(rows, axis=1, keepdims=True)).float()
    quality_N = draws.random(size) * draws.choice([0.1, 1.0])
    similar_NN = (rows_ND @ rows_ND.T).clamp(min=0).double().numpy()

    def value(mask: list[int]) -> float:
        return float(quality_N[mask].mean() + weight * similar_NN[:, mask].max(1).mean())

    masks = list(full_masks(costs_N, limit))
    led = torch.tensor(masks[int(draws.integers(len(masks)))])  # any full mask may lead
    full = FullMasks(torch.from_numpy(costs_N).double(), float(limit))
    with Workers(1) as workers:
        lists = nearest(rows_ND, torch.arange(size), int(draws.integers(2, size + 1)), workers)
        covered = coverage_of(rows_ND, torch.arange(size), led, workers, torch.float32)
        found = token_bound(lists, torch.from_numpy(quality_N), weight, full, led, covered)
    assert max(map(value, masks)) - 1e-6 <= found.bound
