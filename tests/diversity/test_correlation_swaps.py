"""What exchanges do to correlations, in each of their forms, against values."""

import numpy as np
import pytest
import torch
from torch import Tensor

from datamask_pipeline.diversity import correlation_swaps
from datamask_pipeline.diversity.correlation import Joined, Moved, Settled
from datamask_pipeline.diversity.correlation_swaps import CorrelationSwaps
from datamask_pipeline.diversity.moments import moments_of
from datamask_pipeline.families import METRICS

N, D = 60, 96


def rows_of(kind: str, seed: int) -> Tensor:
    """Dense ones; with dimensions that never vary; with some that few have, and one of one value; copies."""
    draws = torch.Generator().manual_seed(seed)
    rows = torch.randn(N, D, generator=draws, dtype=torch.float64) + 0.3
    if kind == "still":
        rows[:, :6] = 0
    if kind == "sparse":
        rows *= torch.rand(N, D, generator=draws) < 0.1
        rows[:, 0] = 1
    if kind == "copies":
        rows = rows[torch.randint(N // 3, (N,), generator=draws)]
    return torch.nn.functional.normalize(rows)


def value(rows_ND: Tensor, mask_N: Tensor) -> float:
    return float(METRICS.make("DiSF").values(rows_ND, mask_N[None])[0])


def model_of(rows_ND: Tensor, mask_N: Tensor) -> CorrelationSwaps:
    return CorrelationSwaps(moments_of(rows_ND, mask_N, True), rows_ND, np.flatnonzero(mask_N))


def forms_without(model: CorrelationSwaps, inside: np.ndarray) -> set[type]:
    return {type(form) for _, form in model._without(inside, 1)}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", [Joined, Settled])
@pytest.mark.parametrize("kind", ["dense", "still", "sparse", "copies"])
@pytest.mark.parametrize("count", [3, 5, 9])
def test_exchanges_of_few_documents_are_followed_exactly(
    form: type, kind: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By products of documents, and by forms in dimensions; where documents make a dimension vary or not, by longer ones."""
    monkeypatch.setattr(correlation_swaps, "SINGLE_FROM", 1_000)
    monkeypatch.setattr(correlation_swaps, "numbers_joined", lambda *_: 1)
    monkeypatch.setattr(correlation_swaps, "numbers_moved", lambda _: 2 if form is Joined else 1)
    used = set()
    for seed in range(4):
        rows_ND, draws = rows_of(kind, seed), np.random.default_rng(seed)
        mask_N = torch.zeros(N, dtype=torch.bool)
        mask_N[draws.permutation(N)[:count]] = True
        model = model_of(rows_ND, mask_N)
        for _ in range(3):
            before = value(rows_ND, mask_N)
            outside, inside = np.flatnonzero(~mask_N)[:12], np.flatnonzero(mask_N)[:3]
            table, additions = model.table(outside, inside), model.additions()
            used |= {type(model._joined()), *forms_without(model, inside)}
            for row, into in enumerate(outside):
                added_N = mask_N.clone()
                added_N[into] = True
                assert additions[into] == pytest.approx(value(rows_ND, added_N) - before, rel=1e-9, abs=1e-8)
                for column, out in enumerate(inside):
                    moved_N = added_N.clone()
                    moved_N[out] = False
                    change = value(rows_ND, moved_N) - before
                    assert table[row, column] == pytest.approx(change, rel=1e-9, abs=1e-6), (seed, into, out)
            into, out = int(draws.choice(outside)), int(draws.choice(inside))
            model.swap(into, out)
            mask_N[into], mask_N[out] = True, False
    assert form in used or kind in ("sparse", "copies")
    assert used <= ({Joined} if form is Joined else {Settled, Moved})
    if kind == "sparse" and form is Settled:
        assert used == {Moved}


def test_where_others_stand_beside_the_mask_it_takes_their_moments() -> None:
    wide_ND = torch.cat([rows_of("dense", seed) for seed in range(5)], dim=1)
    moments = moments_of(wide_ND, torch.arange(N) < 5, True)
    assert isinstance(CorrelationSwaps(moments, wide_ND)._joined(), Settled)
    model = CorrelationSwaps(moments, wide_ND, np.arange(5))
    assert isinstance(model._joined(), Joined)
    for document in range(5, 14):
        model.add(document)
    assert isinstance(model._joined(), Settled), "as many products take longer than dimensions"


@pytest.mark.parametrize("form", [Settled, Joined])
def test_a_single_precision_model_tells_what_a_double_one_does(
    form: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above 32 dimensions forms are products in float32."""
    draws = torch.Generator().manual_seed(0)
    rows_ND = torch.nn.functional.normalize(torch.randn(80, 300, generator=draws, dtype=torch.float64) + 0.2)
    mask_N = torch.arange(80) < 12
    joined = 1 if form is Joined else 1e9
    monkeypatch.setattr(correlation_swaps, "numbers_joined", lambda *_: joined)
    told = model_of(rows_ND, mask_N)
    assert told.rows_TD.dtype == torch.float32
    assert forms_without(told, np.array([0])) == {form}
    monkeypatch.setattr(correlation_swaps, "SINGLE_FROM", 1_000)
    untold = CorrelationSwaps(moments_of(rows_ND, mask_N, True), rows_ND)
    assert untold.rows_TD.dtype == torch.float64
    outside, inside = np.arange(12, 80), np.arange(12)
    expected = untold.table(outside, inside)
    np.testing.assert_allclose(told.table(outside, inside), expected, atol=1e-5 * np.abs(expected).max())


def test_a_document_that_is_most_of_a_dimension_leaves_by_moments() -> None:
    """Of what is left without it, float32 correlations would tell too few digits."""
    rows_ND = rows_of("dense", 1)
    rows_ND[:, 7] *= 1e-3
    rows_ND[0, 7] = 0.5
    mask_N = torch.arange(N) < 9
    model = model_of(rows_ND, mask_N)
    assert forms_without(model, np.array([0])) == {Moved}
    assert forms_without(model, np.array([1])) == {Settled}
    table, before = model.table(np.arange(9, 20), np.array([0])), value(rows_ND, mask_N)
    for row, into in enumerate(range(9, 20)):
        moved_N = mask_N.clone()
        moved_N[into], moved_N[0] = True, False
        assert table[row, 0] == pytest.approx(value(rows_ND, moved_N) - before, abs=1e-3)
