"""The dual bound against every mask of small blocks."""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from datamask_pipeline.selection.facility.bound import dual_bound
from datamask_pipeline.selection.facility.evaluate import coverage_of
from datamask_pipeline.selection.facility.nearest import nearest
from datamask_pipeline.selection.facility.quotas import Quotas
from datamask_pipeline.selection.parallel import Workers


def best_value(similarity_RN, linear_N, weight, quotas):
    best = -float("inf")
    for subset in combinations(range(len(linear_N)), sum(quotas.limits)):
        chosen = list(subset)
        counts = torch.bincount(quotas.groups_N[chosen], minlength=len(quotas.limits)).tolist()
        if tuple(counts) == quotas.limits:
            covered = float(similarity_RN[:, chosen].amax(1).mean())
            best = max(best, float(linear_N[chosen].sum()) + weight * covered)
    return best


def relaxed_value(similarity_RN, linear_N, weight, quotas):
    """The linear relaxation, solved by an independent library."""
    R, N = similarity_RN.shape
    costs = np.concatenate([-linear_N.numpy(), -weight / R * similarity_RN.numpy().reshape(-1)])
    each_R = np.hstack([np.zeros((R, N)), np.kron(np.eye(R), np.ones((1, N)))])
    opened_RN = np.hstack([np.tile(-np.eye(N), (R, 1)), np.eye(R * N)])
    groups = [(quotas.groups_N == group).double().numpy() for group in range(len(quotas.limits))]
    solved = linprog(
        costs,
        A_ub=np.vstack([each_R, opened_RN]),
        b_ub=np.concatenate([np.ones(R), np.zeros(R * N)]),
        A_eq=np.hstack([np.stack(groups), np.zeros((len(groups), R * N))]),
        b_eq=np.array(quotas.limits),
        bounds=(0, 1),
    )
    return -solved.fun


@pytest.mark.sampled(10)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("seed", range(12))
def test_no_mask_exceeds_the_bound(seed, dtype):
    draws = torch.Generator().manual_seed(seed)
    num_documents, budget = 11, 3
    rows_ND = torch.nn.functional.normalize(torch.randn(num_documents, 4, generator=draws) + 0.3)
    linear_N = 0.2 * torch.randn(num_documents, generator=draws, dtype=torch.float64) - 0.1 * (seed % 3)
    weight = [0.0, 0.5, 2.0][seed % 3] if seed else 1.0
    grouped = seed % 2 == 1
    quotas = (
        Quotas(groups_N=(torch.arange(num_documents) % 2), limits=(2, 1))
        if grouped
        else Quotas(groups_N=torch.zeros(num_documents, dtype=torch.int64), limits=(budget,))
    )
    similarity_NN = (rows_ND.double() @ rows_ND.double().T).clamp(min=0)
    best = best_value(similarity_NN, linear_N, weight, quotas)
    with Workers(1) as workers:
        coverage = coverage_of(
            rows_ND, torch.arange(num_documents), torch.tensor([0, 1, 2]), workers, torch.float32
        )
        for length in (2, 4, num_documents):
            lists = nearest(rows_ND, torch.arange(num_documents), length, workers, dtype=dtype)
            bound, dual_R = dual_bound(
                lists,
                linear_N,
                weight,
                quotas,
                start_R=(coverage.best_R + coverage.second_R) / 2,
                width=float((coverage.best_R - coverage.second_R).mean()),
                value=best,
                num_steps=60,
            )
            assert bound >= best - 1e-7
            excess_N = (similarity_NN - dual_R[:, None]).clamp(min=0).mean(0)
            recomputed = weight * float(dual_R.mean()) + quotas.top(linear_N + weight * excess_N)[0]
            assert bound == pytest.approx(recomputed, abs=1e-6)
    relaxed = relaxed_value(similarity_NN, linear_N, weight, quotas)
    assert best - 1e-7 <= relaxed <= bound + 1e-6
    assert bound - relaxed <= 0.02 * weight + 1e-6


def test_cuts_of_quotas_are_each_groups_own():
    scores_N = torch.tensor([1.0, 5.0, 2.0, 4.0, 3.0, 9.0, 7.0], dtype=torch.float64)
    quotas = Quotas(groups_N=torch.tensor([0, 0, 1, 1, 1, 2, 3]), limits=(1, 2, 0, 1))
    total, cut_N = quotas.top(scores_N)
    assert total == 19.0
    assert cut_N.tolist() == [3.0, 3.0, 2.5, 2.5, 2.5, float("inf"), float("-inf")]
