"""Swaps on lists against every swap there is."""

import pytest
import torch

from datamask_pipeline.selection.facility.nearest import nearest
from datamask_pipeline.selection.facility.swaps import swap_on_lists
from datamask_pipeline.selection.parallel import Workers


def block(seed: int, num_rows: int = 80, length: int = 80):
    draws = torch.Generator().manual_seed(seed)
    rows_ND = torch.nn.functional.normalize(torch.randn(num_rows, 6, generator=draws) + 0.3)
    linear_N = 0.01 * torch.randn(num_rows, generator=draws, dtype=torch.float64)
    with Workers(1) as workers:
        lists = nearest(rows_ND, torch.arange(num_rows), length, workers)
    chosen_T = torch.randperm(num_rows, generator=draws)[:10].sort().values
    return rows_ND, linear_N, lists, chosen_T


def value(lists, floor_R, linear_N, weight, chosen_T) -> float:
    """By enumeration of the lists' entries."""
    chosen, total = set(chosen_T.tolist()), 0.0
    for row, (documents, similarities) in enumerate(
        zip(lists.documents_Rk.tolist(), lists.similarities_Rk.tolist(), strict=True)
    ):
        listed = [s for d, s in zip(documents, similarities, strict=True) if d in chosen]
        total += max([float(floor_R[row]), *listed])
    return float(linear_N[chosen_T].sum()) + weight * total / lists.num_references


@pytest.mark.sampled(2)
@pytest.mark.parametrize("length", [12, 80])
@pytest.mark.parametrize("num_groups", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_no_single_swap_is_left_that_gains_much(seed: int, num_groups: int, length: int) -> None:
    _, linear_N, lists, chosen_T = block(seed, length=length)
    groups_N, floor_R = torch.arange(80) % num_groups, lists.floor_R
    swapped = swap_on_lists(lists, linear_N, 0.8, groups_N, floor_R, chosen_T)
    before = value(lists, floor_R, linear_N, 0.8, chosen_T)
    after = value(lists, floor_R, linear_N, 0.8, swapped.selected_T)
    assert swapped.num_swaps > 0
    counts = [torch.bincount(groups_N[rows_T], minlength=3) for rows_T in (chosen_T, swapped.selected_T)]
    assert torch.equal(*counts)
    best = max(
        value(
            lists, floor_R, linear_N, 0.8, torch.tensor([*(set(swapped.selected_T.tolist()) - {out}), into])
        )
        for out in swapped.selected_T.tolist()
        for into in set(range(80)) - set(swapped.selected_T.tolist())
        if groups_N[out] == groups_N[into]
    )
    assert best - after <= 0.01 * (after - before)


def test_identical_documents_are_not_swapped() -> None:
    rows_ND = torch.zeros(8, 4)
    rows_ND[:, 0] = 1
    with Workers(1) as workers:
        lists = nearest(rows_ND, torch.arange(8), 8, workers)
    swapped = swap_on_lists(
        lists,
        torch.zeros(8, dtype=torch.float64),
        1.0,
        torch.zeros(8, dtype=torch.int64),
        lists.floor_R,
        torch.tensor([2, 5]),
    )
    assert swapped.selected_T.tolist() == [2, 5]
    assert swapped.num_swaps == 0
