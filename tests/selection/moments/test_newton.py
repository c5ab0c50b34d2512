"""Newton's steps on the relaxed mask: near the optimum where gradients alone are not, with a bound of their own weights; in
tokens, how many documents that is."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from datamask_pipeline.diversity.moments import MomentMetric, moments_of
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


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("lamb", [0.1, 0.5])
def test_in_tokens_no_fewer_and_longer_documents_are_better(seed: int, lamb: float) -> None:
    """By Pair_simi fewer documents are the better, where they are as unlike each other."""
    draws = np.random.default_rng(seed)
    rows = draws.normal(size=(1000, 16)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    quality, lengths = draws.normal(size=1000), draws.integers(20, 2000, size=1000)
    budget = int(lengths.sum() // 10)
    whole = select_documents(
        rows, quality, diversity="Pair_simi", lamb=lamb, num_tokens=budget, token_counts=lengths
    )
    constants = whole.normalisation

    def value(mask_N: NDArray[np.bool_]) -> float:
        count, sum_D = int(mask_N.sum()), rows[mask_N].sum(0)
        raw = (quality[mask_N].mean(), -(sum_D @ sum_D - count) / (count * (count - 1)))
        scaled = [
            (one - zero) / (top - zero)
            for one, (zero, top) in zip(raw, (constants["quality"], constants["Pair_simi"]), strict=True)
        ]
        return float(lamb * scaled[0] + (1 - lamb) * scaled[1])

    assert value(whole.mask) == pytest.approx(whole.objective.value, abs=1e-4)
    for least, count in ((800, 60), (1200, 58), (1400, 56), (1600, 54), (1800, 50)):
        long_n = np.flatnonzero(lengths >= least)
        settings = {"diversity": "Pair_simi", "num_kicks": 0, "num_restarts": 0}
        part = select_documents(
            rows[long_n],
            quality[long_n],
            lamb=lamb,
            num_documents=count,
            normalisation_constants=constants,
            **settings,
        )
        mask_N = np.zeros(1000, bool)
        mask_N[long_n[part.mask]] = True
        for place in np.argsort(-lengths):
            if not mask_N[place] and lengths[mask_N].sum() + lengths[place] <= budget:
                mask_N[place] = True
        if lengths[mask_N].sum() <= budget:
            assert value(mask_N) < whole.objective.value


@pytest.mark.parametrize("name", ["Pair_simi", "DiSF_uncentred", "LogDet", "Vendi", "DiSF"])
def test_what_one_document_more_is_worth_is_the_derivative_at_fixed_shares(name: str) -> None:
    metric = METRICS.make(name)
    assert isinstance(metric, MomentMetric)
    draws = torch.Generator().manual_seed(1)
    rows_ND = torch.randn(40, 6, generator=draws, dtype=torch.float64)
    moments = moments_of(rows_ND, torch.rand(40, generator=draws, dtype=torch.float64), True)
    more, less = (metric.value(moments.plus(moments, share)) for share in (1e-5, -1e-5))
    assert metric.growth(moments) == pytest.approx((more - less) / (2e-5 * moments.count), abs=1e-9)
