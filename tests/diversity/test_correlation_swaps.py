"""What exchanges do to correlations, in each of their forms, against values."""

import numpy as np
import pytest
import torch
from torch import Tensor

from datamask_pipeline.diversity import correlation_swaps
from datamask_pipeline.diversity.correlation import Joined, Moved, Settled, _ByFactor
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


def model_of(rows_ND: Tensor, mask_N: Tensor, *, known: bool = True) -> CorrelationSwaps:
    inside_I = np.flatnonzero(mask_N) if known else None
    return CorrelationSwaps(moments_of(rows_ND, mask_N, True), rows_ND, inside_I)


def forms_without(model: CorrelationSwaps, inside: np.ndarray) -> set[type]:
    return {type(form) for _, form in model._without(inside, 1)}


def by_documents(form: object) -> tuple[bool, bool]:
    """Whether the squared correlations, and the correlations, are told by documents."""
    assert isinstance(form, Settled)
    return isinstance(form.squared, _ByFactor), isinstance(form.correlated, _ByFactor)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("told", ["pairs", "documents", "dimensions"])
@pytest.mark.parametrize("kind", ["dense", "still", "sparse", "copies"])
@pytest.mark.parametrize("count", [3, 5, 9])
def test_exchanges_of_few_documents_are_followed_exactly(
    told: str, kind: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By products of documents, and by forms in dimensions; where documents make a dimension vary or not, by longer ones."""
    monkeypatch.setattr(correlation_swaps, "SINGLE_FROM", 1_000)
    monkeypatch.setattr(correlation_swaps, "numbers_joined", lambda *_: 1e9 if told == "dimensions" else 1)
    if told == "documents":
        monkeypatch.setattr(correlation_swaps, "_num_pairs", lambda _: 1_000)
    used, forms = set(), set()
    for seed in range(4):
        rows_ND, draws = rows_of(kind, seed), np.random.default_rng(seed)
        mask_N = torch.zeros(N, dtype=torch.bool)
        mask_N[draws.permutation(N)[:count]] = True
        model = model_of(rows_ND, mask_N, known=told != "dimensions")
        for _ in range(3):
            before = value(rows_ND, mask_N)
            outside, inside = np.flatnonzero(~mask_N)[:12], np.flatnonzero(mask_N)[:3]
            table, additions = model.table(outside, inside), model.additions()
            found = [model._joined(), *(form for _, form in model._without(inside, 1))]
            used |= set(map(type, found))
            forms |= {by_documents(form) for form in found if isinstance(form, Settled)}
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
    assert forms <= {{"pairs": (True, True), "documents": (False, True), "dimensions": (False, False)}[told]}
    assert forms or kind in ("sparse", "copies")
    longer = Moved if told == "dimensions" else Joined
    assert used <= {Settled, longer, Moved if count == 3 else longer}
    if kind == "sparse":
        assert Settled not in used


def test_where_others_stand_beside_the_mask_it_takes_their_moments() -> None:
    wide_ND = torch.cat([rows_of("dense", seed) for seed in range(5)], dim=1)
    moments = moments_of(wide_ND, torch.arange(N) < 5, True)
    assert by_documents(CorrelationSwaps(moments, wide_ND)._joined()) == (False, False)
    model = CorrelationSwaps(moments, wide_ND, np.arange(5))
    assert by_documents(model._joined()) == (True, True)
    for document in range(5, 32):
        model.add(document)
    assert by_documents(model._joined()) == (False, True), "of more pairs than dimensions"
    narrow = CorrelationSwaps(
        moments_of(wide_ND[:, :50], torch.arange(N) < 25, True), wide_ND[:, :50], np.arange(25)
    )
    assert by_documents(narrow._joined()) == (False, False), "of half as many documents as dimensions"


@pytest.mark.parametrize("count", [6, 12, 40])
def test_a_single_precision_model_tells_what_a_double_one_does(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above 32 dimensions forms are products in float32, by pairs of few documents, by documents, by dimensions."""
    draws = torch.Generator().manual_seed(0)
    rows_ND = torch.nn.functional.normalize(torch.randn(80, 78, generator=draws, dtype=torch.float64) + 0.2)
    mask_N = torch.arange(80) < count
    told = model_of(rows_ND, mask_N)
    assert told.rows_TD.dtype == torch.float32
    (_, form), *_ = told._without(np.array([0]), 1)
    assert by_documents(form) == {6: (True, True), 12: (True, True), 40: (False, False)}[count]
    monkeypatch.setattr(correlation_swaps, "SINGLE_FROM", 1_000)
    untold = CorrelationSwaps(moments_of(rows_ND, mask_N, True), rows_ND)
    assert untold.rows_TD.dtype == torch.float64
    outside, inside = np.arange(count, 80), np.arange(count)
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
