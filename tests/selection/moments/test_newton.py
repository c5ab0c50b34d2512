"""Newton's steps on the relaxed mask: near the optimum where gradients alone are not, with a bound of their own weights."""

import numpy as np
import pytest
import torch

from datamask_pipeline.families import METRICS
from datamask_pipeline.selection.api import select_documents
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.moments.newton import climb
from datamask_pipeline.selection.moments.relaxed import Ascent, RelaxedObjective, ascend, start_at
from datamask_pipeline.selection.moments.statistics import Statistics, squared_of
from datamask_pipeline.selection.objective import MomentObjective, ObjectiveFunction, Term
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.rows import MemoryRows

SIZE, DIMENSIONS, STEPS = 1500, 48, 80


def isotropic_problem(workers: Workers, limits: tuple[float, ...]) -> RelaxedObjective:
    """Pair_simi on isotropic vectors: a little of everybody is best, and every direction counts alike."""
    draws = torch.Generator().manual_seed(0)
    rows = MemoryRows(torch.nn.functional.normalize(torch.randn(SIZE, DIMENSIONS, generator=draws)), 512)
    term = Term(name="Pair_simi", metric=METRICS.make("Pair_simi"), weight=1.0, zero=0.0, one=1e-3)
    quality_N = torch.randn(SIZE, generator=draws, dtype=torch.float64)
    function = ObjectiveFunction(lamb=0.3, quality_N=quality_N, terms=(term,))
    budget = Budget(
        costs_N=torch.ones(SIZE, dtype=torch.float64),
        groups_N=torch.arange(SIZE) % len(limits),
        limits=limits,
        tokens=False,
        seed=0,
    )
    squared_N = squared_of(rows, workers)
    statistics = Statistics(rows=rows, workers=workers, squared_N=squared_N, needs_second=False)
    objective = MomentObjective(objective=function)
    return RelaxedObjective(statistics=statistics, objective=objective, budget=budget, dtype=torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("limits", [(300.0,), (100.0, 200.0)])
def test_it_comes_nearer_than_gradients_in_as_many_steps(limits: tuple[float, ...]) -> None:
    left: dict[str, list[float]] = {"climb": [], "ascend": []}
    with Workers(1) as workers, torch.inference_mode():
        problem = isotropic_problem(workers, limits)
        for name, way in (("climb", climb), ("ascend", ascend)):
            values: list[float] = []

            def told(
                ascent: Ascent,
                value: float,
                bound: float | None,
                name: str = name,
                values: list[float] = values,
            ) -> bool:
                assert bound is not None
                assert bound >= value - 1e-6
                values.append(value)
                for group, limit in enumerate(limits):
                    inside_n = ascent.weights_N[problem.budget.groups_N == group]
                    assert float(inside_n.sum()) == pytest.approx(limit, abs=1e-6)
                    assert 0 <= float(inside_n.min()) <= float(inside_n.max()) <= 1
                left[name].append(bound - value)
                return False

            start = start_at(problem, problem.budget.best(problem.objective.objective.quality_N, exact=True))
            way(problem, start, STEPS, told)
            assert np.diff(values).min() >= -1e-9
    assert min(left["climb"]) < 1e-3 < 0.1 * min(left["ascend"])


@pytest.mark.slow
def test_the_bound_of_weights_of_either_sign_holds_and_is_theirs() -> None:
    """Told again from what is stored beside the mask, as a proof does."""
    draws = np.random.default_rng(2)
    rows_ND = draws.standard_normal((600, 32)).astype(np.float32)
    quality_N = draws.standard_normal(600)
    result = select_documents(
        rows_ND, quality_N, diversity="Pair_simi", num_documents=120, ratio=None, lamb=0.3
    )
    weights_N = result.certified_at["tangent"]
    assert weights_N.sum() == pytest.approx(120, abs=1e-6)
    assert weights_N.min() < -1e-3
    unit_ND = rows_ND.astype(np.float64) / np.linalg.norm(rows_ND, axis=1, keepdims=True)
    (zero, one), (low, high) = result.normalisation["quality"], result.normalisation["Pair_simi"]
    scale, moment_D = 0.7 / (high - low) / (120 * 119), weights_N @ unit_ND
    scores_N = 0.3 * (quality_N - zero) / (one - zero) / 120 - 2 * scale * (unit_ND @ moment_D)
    told = (
        float(np.sort(scores_N)[-120:].sum()) + scale * (moment_D @ moment_D + 120) - 0.7 * low / (high - low)
    )
    assert result.certificate.bound == pytest.approx(told, abs=1e-5)
    assert result.certificate.gap is not None
    assert result.certificate.gap < 0.03
