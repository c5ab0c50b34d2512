"""Lazy greedy on lists against naive greedy, quotas, costs and ties."""

import numpy as np
import pytest
import torch

from datamask_pipeline.selection.facility.greedy import empty_state, lazy_greedy
from datamask_pipeline.selection.facility.nearest import nearest
from datamask_pipeline.selection.parallel import Workers


def block(seed: int, num_rows: int = 90, length: int = 90):
    draws = torch.Generator().manual_seed(seed)
    rows_ND = torch.nn.functional.normalize(torch.randn(num_rows, 8, generator=draws) + 0.4)
    linear_N = 0.01 * torch.randn(num_rows, generator=draws, dtype=torch.float64)
    with Workers(1) as workers:
        lists = nearest(rows_ND, torch.arange(num_rows), length, workers)
    return rows_ND, linear_N, lists


def naive(floored_RN, linear_N, weight, budget, groups, limits):
    best_R, picks, left = torch.zeros(len(floored_RN), dtype=torch.float64), [], list(limits)
    while len(picks) < budget:
        gains_N = linear_N + weight * (floored_RN - best_R[:, None]).clamp(min=0).mean(0)
        for pick in picks:
            gains_N[pick] = -torch.inf
        for document, group in enumerate(groups):
            if left[group] == 0:
                gains_N[document] = -torch.inf
        pick = int(gains_N.argmax())
        left[groups[pick]] -= 1
        picks.append(pick)
        best_R = best_R.maximum(floored_RN[:, pick])
    return picks


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("limits", [(12,), (3, 9)])
def test_lazy_greedy_is_greedy(seed, limits):
    rows_ND, linear_N, lists = block(seed)
    groups = [row % len(limits) for row in range(90)]
    state = empty_state(lists, linear_N.numpy(), weight=0.7)
    picks, gains = lazy_greedy(state, np.ones(90), np.array(groups), limits)
    above_RN = (rows_ND.double() @ rows_ND.double().T).clamp(min=0) - lists.floor_R.double()[:, None]
    expected = naive(above_RN.clamp(min=0), linear_N, 0.7, 12, groups, limits)
    assert picks.tolist() == expected
    covered = above_RN.clamp(min=0)[:, picks.tolist()].amax(1).mean()
    assert gains.sum() == pytest.approx(float(linear_N[picks].sum() + 0.7 * covered), abs=1e-6)


def test_gains_stay_current():
    _, linear_N, lists = block(9, length=12)
    state = empty_state(lists, linear_N.numpy(), weight=1.0)
    for document in (4, 40, 41):
        state.add(document)
    fresh_Rk = (lists.similarities_Rk - torch.from_numpy(state.best_R)[:, None]).clamp(min=0).double()
    gains_N = np.bincount(lists.documents_Rk.reshape(-1), fresh_Rk.reshape(-1), minlength=90) / 90
    others = [row for row in range(90) if row not in (4, 40, 41)]
    np.testing.assert_allclose(state.gains_N[others], (linear_N.numpy() + gains_N)[others], atol=1e-9)


def test_a_budget_in_costs_is_kept_and_used():
    _, linear_N, lists = block(3)
    costs_N = np.where(np.arange(90) % 3 == 0, 5.0, 2.0)
    picks, _ = lazy_greedy(
        empty_state(lists, linear_N.numpy(), 1.0), costs_N, np.zeros(90, dtype=np.int64), [31.0]
    )
    spent = costs_N[picks].sum()
    assert 31 - 2 < spent <= 31
    assert len(set(picks.tolist())) == len(picks)


def test_identical_documents_are_taken_in_row_order():
    rows_ND = torch.zeros(6, 4)
    rows_ND[:, 0] = 1
    with Workers(1) as workers:
        lists = nearest(rows_ND, torch.arange(6), 6, workers)
    state = empty_state(lists, np.zeros(6), 1.0)
    picks, _ = lazy_greedy(state, np.ones(6), np.zeros(6, dtype=np.int64), [3])
    assert picks.tolist() == [0, 1, 2]
