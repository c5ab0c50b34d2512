"""What exchanges do to correlations of few documents, by their products with each other, against values."""

import numpy as np
import pytest
import torch
from torch import Tensor

from datamask_pipeline.diversity.correlation import Joined, Moved
from datamask_pipeline.diversity.correlation_swaps import CorrelationSwaps
from datamask_pipeline.diversity.moments import moments_of
from datamask_pipeline.families import METRICS

N, D = 60, 96


def rows_of(kind: str, seed: int) -> Tensor:
    """Dense ones; ones that have a dimension alone, or share one value of it; ones of which three are the same."""
    draws = torch.Generator().manual_seed(seed)
    rows = torch.randn(N, D, generator=draws, dtype=torch.float64) + 0.3
    if kind == "sparse":
        rows *= torch.rand(N, D, generator=draws) < 0.1
        rows[:, 0] = 1
    if kind == "copies":
        rows = rows[torch.randint(N // 3, (N,), generator=draws)]
    return torch.nn.functional.normalize(rows)


def value(rows_ND: Tensor, mask_N: Tensor) -> float:
    return float(METRICS.make("DiSF").values(rows_ND, mask_N[None])[0])


@pytest.mark.parametrize("kind", ["dense", "sparse", "copies"])
@pytest.mark.parametrize("count", [3, 5, 9])
def test_exchanges_of_few_documents_are_followed_exactly(kind: str, count: int) -> None:
    for seed in range(4):
        rows_ND, draws = rows_of(kind, seed), np.random.default_rng(seed)
        mask_N = torch.zeros(N, dtype=torch.bool)
        mask_N[draws.permutation(N)[:count]] = True
        model = CorrelationSwaps(moments_of(rows_ND, mask_N, True), rows_ND)
        model.made_of(np.flatnonzero(mask_N))
        assert isinstance(model._joined(), Joined)
        for _ in range(3):
            before = value(rows_ND, mask_N)
            outside, inside = np.flatnonzero(~mask_N)[:12], np.flatnonzero(mask_N)[:3]
            table, additions = model.table(outside, inside), model.additions()
            for row, into in enumerate(outside):
                added_N = mask_N.clone()
                added_N[into] = True
                assert additions[into] == pytest.approx(value(rows_ND, added_N) - before, rel=1e-9, abs=1e-8)
                for column, out in enumerate(inside):
                    moved_N = added_N.clone()
                    moved_N[out] = False
                    change = value(rows_ND, moved_N) - before
                    assert table[row, column] == pytest.approx(change, rel=1e-9, abs=1e-8), (seed, into, out)
            into, out = int(draws.choice(outside)), int(draws.choice(inside))
            model.swap(into, out)
            mask_N[into], mask_N[out] = True, False


def test_where_others_stand_beside_the_mask_it_takes_their_moments() -> None:
    rows_ND = rows_of("dense", 0)
    model = CorrelationSwaps(moments_of(rows_ND, torch.arange(N) < 5, True), rows_ND)
    assert isinstance(model._joined(), Moved)
    model.made_of(np.arange(5))
    assert isinstance(model._joined(), Joined)
    for document in range(5, 14):
        model.add(document)
    assert isinstance(model._joined(), Moved), "as many products take longer than dimensions"


def test_a_single_precision_model_tells_what_a_double_one_does() -> None:
    """Above 128 dimensions forms are products in float32."""
    draws = torch.Generator().manual_seed(0)
    rows_ND = torch.nn.functional.normalize(torch.randn(80, 300, generator=draws, dtype=torch.float64) + 0.2)
    mask_N = torch.arange(80) < 12
    told, untold = (CorrelationSwaps(moments_of(rows_ND, mask_N, True), rows_ND) for _ in range(2))
    told.made_of(np.arange(12))
    outside, inside = np.arange(12, 80), np.arange(12)
    expected = untold.table(outside, inside)
    np.testing.assert_allclose(told.table(outside, inside), expected, atol=1e-5 * np.abs(expected).max())
