"""From a relaxed mask to a binary one: inclusion probabilities are the weights, the better candidate is kept."""

import numpy as np
import pytest
import torch

from datamask_pipeline.families import METRICS
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.moments.rounding import draw_mask, filled, round_mask
from datamask_pipeline.selection.moments.statistics import Statistics, squared_of
from datamask_pipeline.selection.objective import MomentObjective, ObjectiveFunction, Term
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.rows import MemoryRows


def budget(seed: int, limits: tuple[float, ...], size: int, costs_N: torch.Tensor | None = None) -> Budget:
    return Budget(
        costs_N=torch.ones(size, dtype=torch.float64) if costs_N is None else costs_N,
        groups_N=torch.arange(size) % len(limits),
        limits=limits,
        tokens=costs_N is not None,
        seed=seed,
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("limits", [(6.0,), (4.0, 2.0), (5.0, 0.0)])
def test_documents_are_drawn_with_their_weights(limits: tuple[float, ...]) -> None:
    size, repeats = 24, 1500
    point_N = torch.rand(size, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 1.2
    weights_N = budget(0, limits, size).project(point_N)
    counts_N = torch.zeros(size, dtype=torch.float64)
    for seed in range(repeats):
        allowed = budget(seed, limits, size)
        mask_N = draw_mask(weights_N, allowed)
        assert allowed.breach(mask_N) is None
        counts_N += mask_N
    deviation_N = (repeats * weights_N * (1 - weights_N)).sqrt()
    assert ((counts_N - repeats * weights_N).abs() <= 4.5 * deviation_N + 1e-6).all()


def test_a_binary_mask_is_drawn_as_it_is() -> None:
    weights_N = (torch.arange(30) % 5 == 0).double()
    for seed in range(20):
        assert torch.equal(draw_mask(weights_N, budget(seed, (6.0,), 30)), weights_N.bool())


def test_tokens_are_cut_and_filled_up() -> None:
    for seed in range(30):
        draws = torch.Generator().manual_seed(seed)
        costs_N = torch.randint(1, 60, (40,), generator=draws).double()
        allowed = budget(seed, (300.0,), 40, costs_N)
        weights_N = allowed.project(torch.rand(40, generator=draws, dtype=torch.float64))
        for mask_N in (draw_mask(weights_N, allowed), filled(torch.ones(40) > 0, weights_N, allowed),
                       filled(torch.zeros(40) > 0, weights_N, allowed)):  # fmt: skip
            assert allowed.breach(mask_N) is None
            left = 300 - float(costs_N[mask_N].sum())
            assert not (costs_N[~mask_N] <= left).any()


def test_the_better_of_both_roundings_is_kept() -> None:
    """Where all weights are equal the largest are arbitrary; where they are nearly binary a draw loses."""
    kept = []
    with Workers(1) as workers, torch.inference_mode():
        for seed in range(12):
            draws = torch.Generator().manual_seed(seed)
            rows = MemoryRows(torch.nn.functional.normalize(torch.randn(80, 6, generator=draws)), 32)
            statistics = Statistics(
                rows=rows, workers=workers, squared_N=squared_of(rows, workers), needs_second=True
            )
            term = Term(name="m", metric=METRICS.make("DiSF_uncentred"), weight=1.0)
            quality_N = torch.rand(80, generator=draws, dtype=torch.float64)
            objective = MomentObjective(
                objective=ObjectiveFunction(lamb=0.2, quality_N=quality_N, terms=(term,))
            )
            allowed = budget(seed, (8.0,), 80)
            weights_N = allowed.project(torch.rand(80, generator=draws, dtype=torch.float64))
            mask_N, value = round_mask(weights_N, statistics, objective, allowed)
            assert allowed.breach(mask_N) is None
            candidates = [allowed.best(weights_N), draw_mask(weights_N, allowed)]
            values = [objective.value(one_N, statistics.moments(one_N)) for one_N in candidates]
            assert value == max(values)
            assert torch.equal(mask_N, candidates[int(np.argmax(values))])
            kept.append(int(np.argmax(values)))
    assert set(kept) == {0, 1}
