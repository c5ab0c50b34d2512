"""Exchanges on every similarity: quotas are kept, no single one is left that gains, and kicks find what lies apart."""

from itertools import combinations, product

import numpy as np
import pytest
import torch

from datamask_pipeline import select_documents
from datamask_pipeline.selection.facility.exchanges import Exchanges
from datamask_pipeline.selection.parallel import Workers

SIZE, CHOSEN = 40, 7


def rows_of(seed: int, dim: int = 6, size: int = SIZE) -> torch.Tensor:
    """A third are near-copies of others."""
    draws = torch.Generator().manual_seed(seed)
    rows_ND = torch.randn(size, dim, generator=draws)
    rows_ND[: size // 3] = rows_ND[-(size // 3) :] + 0.02 * torch.randn(size // 3, dim, generator=draws)
    return torch.nn.functional.normalize(rows_ND)


def block_of(seed: int, groups_N: torch.Tensor, workers: int = 1) -> tuple[Exchanges, torch.Tensor]:
    draws = torch.Generator().manual_seed(100 + seed)
    linear_N = 0.02 * torch.rand(SIZE, generator=draws, dtype=torch.float64)
    with Workers(workers) as threads:
        made = Exchanges.of(rows_of(seed), linear_N, 0.7, groups_N, seed, threads)
    assert made is not None
    return made, linear_N


def value(rows_ND: torch.Tensor, linear_N: torch.Tensor, chosen_T: torch.Tensor) -> float:
    rows_ND = rows_ND.double()
    covered_N = (rows_ND @ rows_ND[chosen_T].T).clamp(min=0).amax(1)
    return float(linear_N[chosen_T].sum() + 0.7 * covered_N.mean())


@pytest.mark.parametrize("grouped", [False, True])
def test_no_exchange_is_left_that_gains(grouped: bool) -> None:
    for seed in range(5):
        groups_N = torch.arange(SIZE) % (2 if grouped else 1)
        block, linear_N = block_of(seed, groups_N)
        start_T = torch.randperm(SIZE, generator=torch.Generator().manual_seed(seed))[:CHOSEN]
        rows_ND, chosen_T = rows_of(seed), block.best([start_T], 0, 0, float("inf"))
        assert len(set(chosen_T.tolist())) == CHOSEN
        assert torch.equal(groups_N[chosen_T].sort().values, groups_N[start_T].sort().values)
        reached = value(rows_ND, linear_N, chosen_T)
        assert reached >= value(rows_ND, linear_N, start_T)
        for place, into in product(range(CHOSEN), set(range(SIZE)) - set(chosen_T.tolist())):
            if groups_N[into] == groups_N[chosen_T[place]]:
                other_T = chosen_T.clone()
                other_T[place] = into
                assert value(rows_ND, linear_N, other_T) <= reached + 2e-7, (seed, place, into)


def test_kicks_lose_nothing_and_keep_quotas() -> None:
    better = 0
    for seed in range(8):
        groups_N = torch.arange(SIZE) % 2
        block, linear_N = block_of(seed, groups_N)
        start_T = torch.arange(CHOSEN)
        plain_T, kicked_T = (block.best([start_T], 0, kicks, float("inf")) for kicks in (0, 24))
        assert torch.equal(groups_N[kicked_T].sort().values, groups_N[start_T].sort().values)
        plain, kicked = (value(rows_of(seed), linear_N, rows_T) for rows_T in (plain_T, kicked_T))
        assert kicked >= plain - 1e-9
        better += kicked > plain + 1e-6
        assert torch.equal(block.best([start_T], 8, 24, -1.0), plain_T), "what reaches the goal is not kicked"
    assert better


def test_drawn_masks_lose_nothing_and_keep_quotas() -> None:
    better = 0
    for seed in range(8):
        groups_N = torch.arange(SIZE) % 2
        block, linear_N = block_of(seed, groups_N)
        start_T = torch.arange(CHOSEN)
        plain_T, begun_T = (block.best([start_T], restarts, 0, float("inf")) for restarts in (0, 8))
        assert torch.equal(groups_N[begun_T].sort().values, groups_N[start_T].sort().values)
        plain, begun = (value(rows_of(seed), linear_N, rows_T) for rows_T in (plain_T, begun_T))
        assert begun >= plain - 1e-9
        better += begun > plain + 1e-6
    assert better


def test_threads_change_nothing() -> None:
    groups_N = torch.zeros(SIZE, dtype=torch.int64)
    first, second = (block_of(3, groups_N, workers)[0] for workers in (1, 3))
    assert np.array_equal(first.similar_NN, second.similar_NN)


@pytest.mark.parametrize("count", [1, SIZE])
def test_one_and_all(count: int) -> None:
    block, linear_N = block_of(0, torch.zeros(SIZE, dtype=torch.int64))
    chosen_T = block.best([torch.arange(count)], 2, 4, float("inf"))
    assert len(chosen_T) == count
    if count == 1:
        alone = [value(rows_of(0), linear_N, torch.tensor([row])) for row in range(SIZE)]
        assert int(chosen_T) == int(np.argmax(alone))


def test_large_blocks_and_weightless_coverage_have_none() -> None:
    with Workers(1) as workers:
        zeros_N, groups_N = torch.zeros(6000).double(), torch.zeros(6000, dtype=torch.int64)
        assert Exchanges.of(torch.zeros(6000, 2), zeros_N, 1.0, groups_N, 0, workers) is None
        assert Exchanges.of(rows_of(0), zeros_N[:SIZE], 0.0, groups_N[:SIZE], 0, workers) is None


def test_the_best_of_all_masks_of_small_blocks_is_found() -> None:
    chosen = torch.tensor(list(combinations(range(11), 4)))
    for seed in (0, 1, 70, 86, 87, 106, 136, 149):  # swaps on lists miss the last six
        rows_ND = rows_of(seed, dim=2, size=11)
        similar_NN = (rows_ND.double() @ rows_ND.double().T).clamp(min=0)
        values_G = torch.stack([similar_NN[:, part].amax(1).mean() for part in chosen])
        result = select_documents(
            rows_ND.numpy(),
            np.arange(11.0),
            diversity="Facility",
            lamb=0.0,
            ratio=None,
            num_documents=4,
            seed=seed,
        )
        own = similar_NN[:, torch.from_numpy(result.mask)].amax(1).mean()
        assert float(own) >= float(values_G.max()) - 1e-6, seed
