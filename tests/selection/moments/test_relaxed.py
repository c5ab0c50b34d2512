"""The ascent over relaxed masks: exact steps on segments, feasible ends, and a bound that no mask exceeds."""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from datamask_pipeline import select_documents
from datamask_pipeline.diversity.moments import MomentMetric, Moments
from datamask_pipeline.families import METRICS
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.moments.relaxed import (
    SEGMENT_TOLERANCE,
    Ascent,
    RelaxedObjective,
    Segment,
    ascend,
    start_at,
)
from datamask_pipeline.selection.moments.statistics import Statistics, squared_of
from datamask_pipeline.selection.objective import MomentObjective, ObjectiveFunction, Term
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.rows import MemoryRows

MOMENTS = [name for name, member in METRICS.classes().items() if issubclass(member, MomentMetric)]
CONCAVE = [name for name in MOMENTS if METRICS.classes()[name].concave]


def relaxed_problem(name: str, size: int, count: float, workers: Workers, seed: int = 0) -> RelaxedObjective:
    draws = torch.Generator().manual_seed(seed)
    rows_ND = torch.randn(size, 6, generator=draws) + 0.4
    rows = MemoryRows(rows_ND / rows_ND.norm(dim=1, keepdim=True), 64)
    term = Term(name=name, metric=METRICS.make(name), weight=1.0, zero=-0.3, one=0.9)
    quality_N = torch.rand(size, generator=draws, dtype=torch.float64)
    function = ObjectiveFunction(lamb=0.3, quality_N=quality_N, terms=(term,))
    budget = Budget(
        costs_N=torch.ones(size, dtype=torch.float64),
        groups_N=torch.zeros(size, dtype=torch.int64),
        limits=(count,),
        tokens=False,
        seed=seed,
    )
    statistics = Statistics(
        rows=rows, workers=workers, squared_N=squared_of(rows, workers), needs_second=function.needs_second
    )
    objective = MomentObjective(objective=function)
    return RelaxedObjective(statistics=statistics, objective=objective, budget=budget, dtype=torch.float32)


def value_at(problem: RelaxedObjective, weights_N: torch.Tensor) -> float:
    return problem.objective.value(weights_N, problem.statistics.moments(weights_N))


@pytest.mark.slow
@pytest.mark.parametrize("name", CONCAVE)
def test_a_segment_is_searched_to_the_stated_tolerance(name: str) -> None:
    """Against a dense grid, on segments that pass their best point."""
    inside = 0
    with Workers(1) as workers, torch.inference_mode():
        for seed in range(12):
            problem = relaxed_problem(name, 12, 4.0, workers, seed)
            draws = torch.Generator().manual_seed(100 + seed)
            ends = [
                problem.budget.project(torch.rand(12, generator=draws, dtype=torch.float64) * 3)
                for _ in range(2)
            ]
            left, right = (problem.statistics.moments(end_N) for end_N in ends)

            def at(share: float, ends=ends, left=left, right=right, problem=problem) -> float:
                moments: Moments = left.plus(left, -share).plus(right, share)
                return problem.objective.relaxed_value((1 - share) * ends[0] + share * ends[1], moments)

            ascent = Ascent(weights_N=ends[0], moments=left, value=at(0.0))
            segment = Segment(problem.objective, ascent, ends[1], right)
            share, value = segment.best()
            assert value == pytest.approx(at(share), abs=1e-12)
            if problem.objective.concave:
                gradient_N, _ = problem.gradient(left, torch.float32)
                few, reached = segment.best_of_few(float(gradient_N @ (ends[1] - ends[0])))
                assert reached == pytest.approx(at(few), abs=1e-12)
                assert at(0.0) <= reached <= value + 1e-9
                # Two parabolas find nearly all that there is to gain.
                assert value - reached <= 0.05 * (value - at(0.0)) + 1e-9

            grid = np.linspace(max(0, share - 0.002), min(1, share + 0.002), 401)
            best = grid[np.argmax([at(float(point)) for point in grid])]
            if 0 < share < 1:
                inside += 1
                assert best == pytest.approx(share, abs=2 * SEGMENT_TOLERANCE)
    assert inside >= 3


@pytest.mark.parametrize("name", MOMENTS)
def test_the_objective_never_falls_and_masks_stay_feasible(name: str) -> None:
    values: list[float] = []

    def told(ascent: Ascent, value: float, bound: float | None) -> bool:
        values.append(value)
        assert float(ascent.weights_N.sum()) == pytest.approx(15, abs=1e-6)
        assert ((ascent.weights_N >= 0) & (ascent.weights_N <= 1)).all()
        assert bound is None or bound >= value - 1e-6
        return False

    with Workers(1) as workers, torch.inference_mode():
        problem = relaxed_problem(name, 60, 15.0, workers)
        start_N = torch.arange(60) < 15
        ascend(problem, start_at(problem, start_N), 30, told)
    assert np.diff(values).min() >= -1e-7
    assert values[-1] > values[0] + 1e-3


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CONCAVE)
def test_the_optimum_is_that_of_an_independent_solver(name: str) -> None:
    with Workers(1) as workers, torch.inference_mode():
        problem = relaxed_problem(name, 16, 5.0, workers)
        start = start_at(problem, torch.arange(16) < 5)
        reached = value_at(problem, ascend(problem, start, 300, lambda *_: False).weights_N)
        found = minimize(
            lambda weights: -value_at(problem, torch.from_numpy(weights)),
            np.full(16, 5 / 16),
            method="SLSQP",
            bounds=[(0, 1)] * 16,
            constraints={"type": "eq", "fun": lambda weights: weights.sum() - 5},
            options={"maxiter": 500, "ftol": 1e-12},
        )
    assert reached >= -found.fun - 2e-4


@pytest.mark.parametrize("name", CONCAVE)
def test_the_bound_holds_for_every_mask_at_every_point(name: str) -> None:
    with Workers(1) as workers, torch.inference_mode():
        problem = relaxed_problem(name, 10, 4.0, workers)
        best = max(
            value_at(problem, torch.isin(torch.arange(10), torch.tensor(chosen)))
            for chosen in combinations(range(10), 4)
        )
        draws = torch.Generator().manual_seed(1)
        for _ in range(20):
            weights_N = problem.budget.project(torch.rand(10, generator=draws, dtype=torch.float64))
            moments = problem.statistics.moments(weights_N)
            gradient_N, form = problem.gradient(moments, torch.float32)
            bound = problem.bound(gradient_N, form, moments)
            assert bound is not None
            assert bound >= best - 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_clusters_with_near_copies_are_climbed_in_forty_steps(seed: int) -> None:
    """Their curvature differs much between directions: steps of one kind go to and fro and leave five times as much."""
    size, dim, draws = 2000, 96, torch.Generator().manual_seed(seed)
    centres_CD = torch.nn.functional.normalize(torch.randn(60, dim, generator=draws))
    rows_ND = centres_CD[torch.randint(60, (size,), generator=draws)]
    rows_ND = rows_ND + 0.5 / dim**0.5 * torch.randn(size, dim, generator=draws)
    half = size // 2
    rows_ND[:half] = rows_ND[half:] + 0.02 / dim**0.5 * torch.randn(half, dim, generator=draws)
    quality_N = torch.randn(size, generator=draws, dtype=torch.float64) / 1000
    left: list[float] = []

    def told(ascent: Ascent, value: float, bound: float | None) -> bool:
        assert bound is not None
        left.append(bound - value)
        return False

    with Workers(1) as workers, torch.inference_mode():
        rows = MemoryRows(torch.nn.functional.normalize(rows_ND), 512)
        term = Term(name="DiSF_uncentred", metric=METRICS.make("DiSF_uncentred"), weight=1.0)
        function = ObjectiveFunction(lamb=0.5, quality_N=quality_N, terms=(term,))
        budget = Budget(
            costs_N=torch.ones(size, dtype=torch.float64),
            groups_N=torch.zeros(size, dtype=torch.int64),
            limits=(size / 10,),
            tokens=False,
            seed=0,
        )
        problem = RelaxedObjective(
            statistics=Statistics(
                rows=rows, workers=workers, squared_N=squared_of(rows, workers), needs_second=True
            ),
            objective=MomentObjective(objective=function),
            budget=budget,
            dtype=torch.float32,
        )
        ascend(problem, start_at(problem, budget.best(quality_N, exact=True)), 40, told)
    assert min(left) < 5e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Pair_simi", "DiSF_uncentred", "LogDet", "Vendi"])
def test_in_tokens_the_ascent_ends_where_its_bound_is_met(name: str) -> None:
    """Positive vectors: few have a mean near none, where Pair_simi would be a question of how few."""
    draws = np.random.default_rng(100)
    rows, quality = np.abs(draws.normal(size=(500, 32))).astype(np.float32), draws.random(500)
    lengths = np.exp(draws.normal(5, 0.8, size=500)).astype(int) + 5
    gaps = [
        select_documents(
            rows,
            quality,
            diversity=name,
            lamb=lamb,
            num_tokens=int(lengths.sum() // 5),
            token_counts=lengths,
            num_swap_rounds=0,
            num_kicks=0,
            num_restarts=0,
        ).certificate.gap
        for lamb in (0.1, 0.5)
    ]
    assert max(gaps) < 0.08
