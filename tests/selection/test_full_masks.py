"""Full masks of a budget in tokens: the least number of their documents, and the best mean, against every one there is."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.full_masks import FullMasks

LENGTHS = {"few": (1, 4), "many": (1, 40), "alike": (90, 110)}


def drawn(kind: str, seed: int, size: int) -> tuple[Budget, torch.Tensor, np.random.Generator]:
    draws = np.random.default_rng(seed)
    costs_N = torch.from_numpy(draws.integers(*LENGTHS[kind], size)).double()
    limit = max(2 * float(costs_N.max()), float(costs_N.sum()) * draws.uniform(0.1, 0.9))
    no_groups_N = torch.zeros(size, dtype=torch.int64)
    budget = Budget(costs_N=costs_N, groups_N=no_groups_N, limits=(limit,), tokens=True, seed=seed)
    return budget, torch.from_numpy(draws.normal(size=size)), draws


def of(budget: Budget) -> FullMasks:
    return FullMasks(budget.costs_N, budget.limits[0])


def full_masks(budget: Budget) -> torch.Tensor:
    masks_GN = torch.tensor(list(product([False, True], repeat=len(budget.costs_N))))
    left_G = budget.limits[0] - masks_GN.double() @ budget.costs_N
    fits_GN = ~masks_GN & (budget.costs_N <= left_G[:, None])
    return masks_GN[(left_G >= 0) & ~fits_GN.any(1)]


@pytest.mark.parametrize("kind", LENGTHS)
def test_no_full_mask_has_a_larger_mean_or_fewer_documents(kind: str) -> None:
    over = []
    for seed in range(60):
        budget, scores_N, draws = drawn(kind, seed, 9)
        added, held = (0.0, 0.0) if seed % 2 else (float(draws.normal()), float(draws.integers(1, 5)))
        masks_GN = full_masks(budget)
        means_G = (masks_GN.double() @ scores_N + added) / (masks_GN.sum(1) + held)
        over.append(of(budget).largest_mean(scores_N, added, held) - float(means_G.max()))
        assert of(budget).fewest <= max(2, int(masks_GN.sum(1).min()))
    assert min(over) >= -1e-9
    assert min(over) < 0.02


@pytest.mark.parametrize("kind", LENGTHS)
def test_of_many_documents_it_is_the_mean_of_a_relaxed_mask(kind: str) -> None:
    """A linear program in each document's share, of masks that leave less than the shortest document."""
    for seed in range(4):
        budget, scores_N, _ = drawn(kind, seed, 200)
        costs_N, limit = budget.costs_N.numpy(), budget.limits[0]
        shortest, ones_N = costs_N.min(), np.ones(len(costs_N))
        above_zero = np.column_stack([np.eye(len(costs_N)), -ones_N])  # each share is at most one document's
        tokens = [np.append(costs_N, -limit), np.append(-costs_N, limit - shortest)]
        found = linprog(
            -np.append(scores_N.numpy(), 0.0),
            A_ub=np.vstack([above_zero, *tokens]),
            b_ub=np.zeros(len(costs_N) + 2),
            A_eq=np.append(ones_N, 0.0)[None],
            b_eq=[1.0],
        )
        assert -found.fun - 1e-9 <= of(budget).largest_mean(scores_N) <= -found.fun + 0.05


def test_a_budget_that_everything_meets_has_one_mask() -> None:
    budget, scores_N, _ = drawn("many", 0, 20)
    whole = Budget(costs_N=budget.costs_N, groups_N=budget.groups_N, limits=(1e6,), tokens=True, seed=0)
    assert of(whole).largest_mean(scores_N, 1.0, 2.0) == pytest.approx((float(scores_N.sum()) + 1) / 22)
