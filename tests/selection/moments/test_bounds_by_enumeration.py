"""No mask of a small block exceeds its bound, wherever the tangent is taken: every mask, many hostile blocks.

`benchmarks/small_cases.py` asks the same of whole selections.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from datamask_pipeline.diversity.moments import MomentMetric, moments_of
from datamask_pipeline.families import METRICS
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.moments.newton import climb
from datamask_pipeline.selection.moments.relaxed import RelaxedObjective, start_at
from datamask_pipeline.selection.moments.statistics import Statistics, squared_of
from datamask_pipeline.selection.objective import MomentObjective, ObjectiveFunction, Term
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.rows import MemoryRows

CONCAVE = [
    name for name, member in METRICS.classes().items() if issubclass(member, MomentMetric) and member.concave
]
KINDS = ("isotropic", "near-copies", "copies", "orthogonal")
CASES = 150
ROUNDING = 2e-6
"""Of the value, which is float64 here; tangents are float32 products."""


def rows_of(kind: str, draws: np.random.Generator, size: int, dim: int) -> torch.Tensor:
    rows_ND = draws.standard_normal((size, dim))
    half = size // 2
    if kind == "near-copies":
        rows_ND[:half] = rows_ND[half : 2 * half] + 0.01 * draws.standard_normal((half, dim))
    elif kind == "copies":
        rows_ND[:half] = rows_ND[half : 2 * half]
    elif kind == "orthogonal":
        rows_ND = np.eye(dim)[draws.integers(dim, size=size)]
    return torch.nn.functional.normalize(torch.from_numpy(rows_ND).float())


def problem_of(
    case: int, name: str, workers: Workers, *, tokens: bool, held: bool = False
) -> RelaxedObjective:
    """Six to nine documents in two to eight dimensions, of which two to five are chosen, some with quotas or by tokens.

    Beside one to three that are held, where that is asked for.
    """
    draws = np.random.default_rng(case)
    size, dim = int(draws.integers(6, 10)), int(draws.integers(2, 9))
    rows = MemoryRows(rows_of(KINDS[case % len(KINDS)], draws, size, dim), 64)
    quality_N = draws.random(size) if draws.random() < 0.7 else np.full(size, 0.5)
    term = Term(name=name, metric=METRICS.make(name), weight=1.0, zero=-0.3, one=0.4)
    function = ObjectiveFunction(
        lamb=(0.0, 0.5, 1.0)[case % 3], quality_N=torch.from_numpy(quality_N), terms=(term,)
    )
    beside = None
    if held:
        beside_nD = rows_of("isotropic", draws, int(draws.integers(1, 4)), dim)
        beside = moments_of(
            beside_nD.double(), torch.ones(len(beside_nD), dtype=torch.bool), function.needs_second
        )
        function = replace(
            function, held_count=beside.count, held_quality=float(draws.random() * beside.count)
        )
    count = int(draws.integers(2, 6))
    has_quotas = draws.random() < 0.25
    budget = Budget(
        costs_N=torch.ones(size, dtype=torch.float64),
        groups_N=torch.arange(size) % 2 if has_quotas else torch.zeros(size, dtype=torch.int64),
        limits=(count // 2, count - count // 2) if has_quotas else (count,),
        tokens=False,
        seed=case,
    )
    if tokens:
        costs_N = torch.from_numpy(draws.integers(*((1, 5), (5, 30), (90, 110))[case % 3], size)).double()
        limit = max(2 * float(costs_N.max()), float(costs_N.sum()) * draws.uniform(0.2, 0.8))
        no_groups_N = torch.zeros(size, dtype=torch.int64)
        budget = Budget(costs_N=costs_N, groups_N=no_groups_N, limits=(limit,), tokens=True, seed=case)
    statistics = Statistics(
        rows=rows,
        workers=workers,
        squared_N=squared_of(rows, workers),
        needs_second=function.needs_second,
        held=beside,
    )
    return RelaxedObjective(
        statistics=statistics,
        objective=MomentObjective(objective=function, moving_count=tokens),
        budget=budget,
        dtype=torch.float32,
    )


def best_of_all(problem: RelaxedObjective) -> float:
    """The largest value of any mask, in tokens of any that is full, in float64."""
    function, size, budget = problem.objective.objective, problem.statistics.rows.num_rows, problem.budget
    masks_GN = torch.tensor(list(product([False, True], repeat=size)))
    if budget.tokens:
        left_G = budget.limits[0] - masks_GN.double() @ budget.costs_N
        fits_GN = ~masks_GN & (budget.costs_N <= left_G[:, None])
        masks_GN = masks_GN[(left_G >= 0) & ~fits_GN.any(1)]
    else:
        masks_GN = masks_GN[masks_GN.sum(1) == budget.num_documents]
        masks_GN = masks_GN[(masks_GN & (budget.groups_N == 0)).sum(1) == budget.limits[0]]
    (term,) = function.terms
    rows_ND, held = problem.statistics.rows.everything().double(), problem.statistics.held
    if held is None:
        raw_G = term.metric.values(rows_ND, masks_GN)
    else:
        unions = [moments_of(rows_ND, mask_N, function.needs_second).plus(held) for mask_N in masks_GN]
        raw_G = torch.tensor([term.metric.value(moments) for moments in unions], dtype=torch.float64)
    quality_G = masks_GN.double() @ function.quality_N + function.held_quality
    quality_G /= masks_GN.sum(1) + function.held_count
    return float((function.lamb * quality_G + (1 - function.lamb) * (term.scale * raw_G + term.offset)).max())


def bound_at(problem: RelaxedObjective, weights_N: torch.Tensor) -> float:
    moments = problem.statistics.moments(weights_N)
    bound = problem.bound(*problem.gradient(moments, torch.float32), moments)
    assert bound is not None
    return bound


def never(*_: object) -> bool:
    return False


@pytest.mark.sampled(1)
@pytest.mark.parametrize("tokens", [False, True], ids=["documents", "tokens"])
@pytest.mark.parametrize("name", CONCAVE)
def test_no_mask_exceeds_a_bound(name: str, tokens: bool) -> None:
    """Neither at points drawn at random nor, of some blocks, at the end of an ascent."""
    left = []
    with Workers(1) as workers, torch.inference_mode():
        for case in range(CASES):
            problem = problem_of(case, name, workers, tokens=tokens)
            draws = torch.Generator().manual_seed(case)
            best, size = best_of_all(problem), problem.statistics.rows.num_rows
            for _ in range(2):
                drawn_N = torch.rand(size, generator=draws, dtype=torch.float64)
                assert bound_at(problem, problem.budget.project(4 * drawn_N)) >= best - ROUNDING, case
            if case % 5 == 0:
                end = climb(problem, start_at(problem, problem.budget.random("first")), 12, never)
                left.append(bound_at(problem, end.weights_N) - best)
                assert left[-1] >= -ROUNDING, case
    assert np.quantile(left, 0.2) < (0.05 if tokens else 1e-3)  # where bounds are met a wrong one is told


@pytest.mark.sampled(1)
@pytest.mark.parametrize("tokens", [False, True], ids=["documents", "tokens"])
@pytest.mark.parametrize("name", CONCAVE)
def test_no_union_with_what_is_held_exceeds_a_bound(name: str, tokens: bool) -> None:
    left = []
    with Workers(1) as workers, torch.inference_mode():
        for case in range(CASES // 3):
            problem = problem_of(case, name, workers, tokens=tokens, held=True)
            draws = torch.Generator().manual_seed(case)
            best, size = best_of_all(problem), problem.statistics.rows.num_rows
            for _ in range(2):
                drawn_N = torch.rand(size, generator=draws, dtype=torch.float64)
                left.append(bound_at(problem, problem.budget.project(4 * drawn_N)) - best)
                assert left[-1] >= -ROUNDING, case
    assert min(left) < 0.01
