"""Swaps: the mask keeps its budget, its moments are those of the mask, its value never falls and ends at a local best."""

from itertools import product

import numpy as np
import pytest
import torch

from datamask_pipeline.diversity.moments import MomentMetric, moments_of
from datamask_pipeline.families import METRICS
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.moments.statistics import Statistics, squared_of
from datamask_pipeline.selection.moments.swaps import SwapResult, swap
from datamask_pipeline.selection.objective import MomentObjective, ObjectiveFunction, Term
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.rows import MemoryRows

MOMENTS = [name for name, member in METRICS.classes().items() if issubclass(member, MomentMetric)]
EXACT = ["Pair_simi", "DiSF_uncentred", "LogDet"]
BUDGETS = ["documents", "quotas", "tokens"]


class Block:
    """Isotropic rows in few dimensions, where swaps wander, with a random first mask of the budget."""

    def __init__(self, name: str, kind: str, seed: int, size: int = 120) -> None:
        draws = torch.Generator().manual_seed(seed)
        self.rows_ND = torch.nn.functional.normalize(torch.randn(size, 8, generator=draws))
        term = Term(name=name, metric=METRICS.make(name), weight=1.0)
        quality_N = torch.rand(size, generator=draws, dtype=torch.float64)
        self.function = ObjectiveFunction(lamb=0.05, quality_N=quality_N, terms=(term,))
        costs_N = torch.randint(1, 50, (size,), generator=draws).double()
        self.budget = Budget(
            costs_N=costs_N if kind == "tokens" else torch.ones(size, dtype=torch.float64),
            groups_N=torch.arange(size) % 3 if kind == "quotas" else torch.zeros(size, dtype=torch.int64),
            limits={"documents": (12.0,), "quotas": (6.0, 4.0, 0.0), "tokens": (350.0,)}[kind],
            tokens=kind == "tokens",
            seed=seed,
        )
        self.mask_N = self.budget.random("first")

    def value(self, mask_N: torch.Tensor) -> float:
        raw = self.function.terms[0].metric.values(self.rows_ND.double(), mask_N[None])
        return 0.05 * float(self.function.quality_N[mask_N].mean()) + 0.95 * float(raw[0])

    def swapped(self, num_rounds: int = 12, goal: float = float("inf")) -> SwapResult:
        with Workers(1) as workers, torch.inference_mode():
            rows = MemoryRows(self.rows_ND, 64)
            statistics = Statistics(
                rows=rows,
                workers=workers,
                squared_N=squared_of(rows, workers),
                needs_second=self.function.needs_second,
            )
            objective = MomentObjective(objective=self.function)
            return swap(self.mask_N, statistics, objective, self.budget, num_rounds, torch.float32, goal)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", BUDGETS)
@pytest.mark.parametrize("name", MOMENTS)
def test_the_result_is_of_its_own_mask_and_keeps_the_budget(name: str, kind: str) -> None:
    num_swaps = 0
    for seed in range(12):
        block = Block(name, kind, seed)
        result = block.swapped()
        assert block.budget.breach(result.mask_N) is None, seed
        found = moments_of(block.rows_ND.double(), result.mask_N, True)
        assert result.moments.count == pytest.approx(found.count)
        torch.testing.assert_close(result.moments.first_D, found.first_D, rtol=0, atol=1e-4)
        assert result.value == pytest.approx(block.value(result.mask_N), abs=2e-4)
        assert block.value(result.mask_N) >= block.value(block.mask_N) - 1e-6
        num_swaps += result.num_swaps
        moved = int((result.mask_N & ~block.mask_N).sum())
        assert moved <= result.num_swaps
    assert num_swaps > 12


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", EXACT)
def test_no_single_swap_is_left_that_gains(name: str) -> None:
    """All pairs tried in float64, as few documents as a round models all swaps of."""
    for seed in range(4):
        block = Block(name, "documents", seed, size=40)
        mask_N = block.swapped(200).mask_N
        value = block.value(mask_N)
        inside, outside = np.flatnonzero(mask_N), np.flatnonzero(~mask_N)
        for out, into in product(inside, outside):
            other_N = mask_N.clone()
            other_N[out], other_N[into] = False, True
            assert block.value(other_N) <= value + 1e-5


def test_a_goal_that_is_reached_ends_the_search() -> None:
    block = Block("Pair_simi", "documents", 0)
    result = block.swapped(goal=-1.0)
    assert result.num_swaps == 0
    assert torch.equal(result.mask_N, block.mask_N)


@pytest.mark.parametrize("name", MOMENTS)
def test_equal_seeds_give_equal_masks(name: str) -> None:
    first, second = (Block(name, "documents", 5).swapped() for _ in range(2))
    assert torch.equal(first.mask_N, second.mask_N)
    assert first.value == second.value
