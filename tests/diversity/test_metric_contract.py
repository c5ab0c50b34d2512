"""The contract of every diversity metric found: shapes, invariance, marginals, derivatives, concavity."""

import types
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from datamask_pipeline import families
from datamask_pipeline.diversity import correlation_swaps
from datamask_pipeline.diversity.base import DiversityMetric
from datamask_pipeline.diversity.moments import MomentMetric, Moments, moments_of, squared_norms
from datamask_pipeline.diversity.swap_models import SummedSwaps
from datamask_pipeline.errors import ConfigurationError, UnknownNameError
from datamask_pipeline.families import METRICS

NAMES = sorted(METRICS.classes())
MOMENT_NAMES = [name for name, member in METRICS.classes().items() if issubclass(member, MomentMetric)]
N, D, K = 40, 6, 15


@pytest.fixture
def rows_ND() -> torch.Tensor:
    rows = torch.randn(N, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.4
    return rows / rows.norm(dim=1, keepdim=True)


@pytest.fixture
def mask_N() -> torch.Tensor:
    return torch.arange(N) % 8 < 3


def fixed_count_value(
    metric: MomentMetric, rows_ND: torch.Tensor, weights_N: torch.Tensor, count: float
) -> float:
    found = moments_of(rows_ND, weights_N, True)
    return metric.value(
        Moments(count=count, first_D=found.first_D, second_DD=found.second_DD, squared=found.squared)
    )


def oracle(name: str, rows: np.ndarray) -> float:
    """Each formula from its definition, in plain NumPy over the selected rows."""
    k = len(rows)
    if name == "Pair_simi":
        products = rows @ rows.T
        return -(products.sum() - np.trace(products)) / (k * (k - 1))
    if name == "DiSF_uncentred":
        return -(np.square(rows.T @ rows / k)).sum()
    if name == "DiSF":
        correlations = np.corrcoef(rows.T)
        return -(np.square(correlations).sum() - len(correlations))
    if name == "LogDet":
        dim = rows.shape[1]
        return float(np.linalg.slogdet(np.eye(dim) + dim / k * rows.T @ rows)[1] / dim)
    if name == "Vendi":
        shares = np.linalg.eigvalsh(rows @ rows.T / k)
        shares = shares[shares > 1e-12]
        return float(-(shares * np.log(shares)).sum())
    raise AssertionError(f"write an oracle for {name}")


@pytest.mark.parametrize("name", MOMENT_NAMES)
def test_value_is_the_formula(name: str, rows_ND: torch.Tensor, mask_N: torch.Tensor) -> None:
    found = METRICS.make(name).values(rows_ND, mask_N[None])[0]
    assert found == pytest.approx(oracle(name, rows_ND[mask_N].numpy()), rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_values_of_many_masks_are_those_of_each(name: str, rows_ND: torch.Tensor) -> None:
    metric = METRICS.make(name)
    draws = torch.Generator().manual_seed(3)
    masks_GN = torch.stack([torch.randperm(N, generator=draws) < size for size in (K, K, K)])
    together = metric.values(rows_ND, masks_GN)
    assert together.dtype == torch.float64
    assert together.shape == (3,)
    alone = torch.cat([metric.values(rows_ND, mask[None]) for mask in masks_GN])
    torch.testing.assert_close(together, alone, rtol=1e-6, atol=1e-9)
    assert len(together.unique()) == 3


@pytest.mark.parametrize("name", NAMES)
def test_masks_of_different_sizes(name: str, rows_ND: torch.Tensor) -> None:
    metric = METRICS.make(name)
    masks_GN = torch.stack([torch.arange(N) < 9, torch.arange(N) < 20])
    together = metric.values(rows_ND, masks_GN)
    alone = torch.cat([metric.values(rows_ND, mask[None]) for mask in masks_GN])
    torch.testing.assert_close(together, alone, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_order_of_documents_does_not_matter(name: str, rows_ND: torch.Tensor, mask_N: torch.Tensor) -> None:
    metric = METRICS.make(name)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(5))
    before = metric.values(rows_ND, mask_N[None])
    torch.testing.assert_close(
        metric.values(rows_ND[order], mask_N[order][None]), before, rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("name", NAMES)
def test_spread_rows_are_more_diverse_than_copies(name: str) -> None:
    rows_ND = torch.cat([torch.eye(6)[:5], torch.eye(6)[5:].repeat(5, 1)]).double()
    rows_ND = rows_ND + 0.05 * torch.randn(
        10, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    rows_ND = rows_ND / rows_ND.norm(dim=1, keepdim=True)
    spread = torch.tensor([True] * 5 + [True] + [False] * 4)
    copies = torch.tensor([True] + [False] * 4 + [True] * 5)
    values = METRICS.make(name).values(rows_ND, torch.stack([spread, copies]))
    if name == "DiSF":
        pytest.skip("correlations of six rows in six dimensions say nothing about spread")
    assert values[0] > values[1]


@pytest.mark.parametrize("name", MOMENT_NAMES)
def test_marginals_are_finite_differences(name: str, rows_ND: torch.Tensor, mask_N: torch.Tensor) -> None:
    metric = METRICS.make(name)
    assert isinstance(metric, MomentMetric)
    marginals_N = metric.marginals(rows_ND, mask_N)
    count = float(mask_N.sum())
    expected = []
    for row in range(N):
        low, high = mask_N.double(), mask_N.double()
        if metric.exact_marginals:
            low[row], high[row], width = 0.0, 1.0, 1.0
        else:
            low[row], high[row], width = low[row] - 1e-5, high[row] + 1e-5, 2e-5
        ends = [
            fixed_count_value(
                metric, rows_ND, weights, float(weights.sum()) if metric.moving_count else count
            )
            for weights in (high, low)
        ]
        difference = ends[0] - ends[1]
        expected.append(difference / width)
    # What no difference quotient blurs must agree to float64: float32 in a shared constant would bias both sides.
    rtol, atol = (1e-8, 1e-11) if metric.exact_marginals else (1e-6, 1e-8)
    torch.testing.assert_close(marginals_N, torch.tensor(expected, dtype=torch.float64), rtol=rtol, atol=atol)


@pytest.mark.parametrize("seed", range(8))
def test_a_dimension_that_one_document_has_alone_is_gone_with_it(seed: int) -> None:
    """As of TF-IDF vectors: what is left of such a dimension is rounding, which must not count as a variance."""
    draws = np.random.default_rng(seed)
    rows = draws.exponential(size=(24, 40)) * (draws.random((24, 40)) < 0.08)
    rows[:, 0] += 0.1
    rows_ND = torch.tensor(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=torch.float32)
    mask_N = torch.tensor(draws.permutation(24) < 8)
    alone_D = (rows_ND[mask_N] > 0).sum(0) == 1
    assert alone_D.any()
    expected = []
    for row in range(24):
        low, high = mask_N.double(), mask_N.double()
        low[row], high[row] = 0.0, 1.0
        chosen = [rows_ND[weights > 0].double().numpy() for weights in (high, low)]
        values = [oracle("DiSF", rows[:, rows.std(0) > 1e-6]) for rows in chosen]
        expected.append(values[0] - values[1])
    marginals_N = METRICS.make("DiSF").marginals(rows_ND, mask_N)
    torch.testing.assert_close(marginals_N, torch.tensor(expected, dtype=torch.float64), rtol=1e-2, atol=2e-3)


def test_facility_marginals_are_finite_differences(rows_ND: torch.Tensor, mask_N: torch.Tensor) -> None:
    metric = METRICS.make("Facility")
    marginals_N = metric.marginals(rows_ND, mask_N)
    for row in range(N):
        pair = mask_N.repeat(2, 1)
        pair[0, row], pair[1, row] = True, False
        inside, outside = metric.values(rows_ND, pair)
        assert float(marginals_N[row]) == pytest.approx(float(inside - outside), abs=1e-9)


@pytest.mark.parametrize("name", MOMENT_NAMES)
def test_form_is_the_derivative_at_a_relaxed_mask(name: str, rows_ND: torch.Tensor) -> None:
    metric = METRICS.make(name)
    assert isinstance(metric, MomentMetric)
    weights_N = 0.1 + 0.8 * torch.rand(N, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    moments = moments_of(rows_ND, weights_N, True)
    scores_N = metric.form(moments).scores(rows_ND, squared_norms(rows_ND))
    for row in range(0, N, 5):
        values = []
        for step in (1e-5, -1e-5):
            moved = weights_N.clone()
            moved[row] += step
            values.append(fixed_count_value(metric, rows_ND, moved, moments.count))
        assert float(scores_N[row]) == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("name", [name for name in MOMENT_NAMES if name not in ("DiSF", "Vendi")])
def test_interactions_are_second_derivatives(name: str, rows_ND: torch.Tensor) -> None:
    metric = METRICS.make(name)
    assert isinstance(metric, MomentMetric)
    weights_N = 0.1 + 0.8 * torch.rand(N, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    moments = moments_of(rows_ND, weights_N, True)
    hessian_NN = metric.interaction(moments, rows_ND, rows_ND)
    assert hessian_NN is not None

    def scores(row: int, step: float) -> torch.Tensor:
        moved = weights_N.clone()
        moved[row] += step
        found = moments_of(rows_ND, moved, True)
        kept = Moments(
            count=moments.count, first_D=found.first_D, second_DD=found.second_DD, squared=found.squared
        )
        return metric.form(kept).scores(rows_ND, squared_norms(rows_ND))

    for row in (0, 11):
        torch.testing.assert_close(
            hessian_NN[row], (scores(row, 1e-5) - scores(row, -1e-5)) / 2e-5, rtol=1e-5, atol=1e-9
        )


@pytest.mark.parametrize("name", [name for name in MOMENT_NAMES if METRICS.classes()[name].concave])
def test_declared_concavity_holds_on_midpoints(name: str, rows_ND: torch.Tensor) -> None:
    metric = METRICS.make(name)
    assert isinstance(metric, MomentMetric)
    draws = torch.Generator().manual_seed(11)
    excess = []
    for _ in range(60):
        left_N = (torch.rand(N, generator=draws, dtype=torch.float64) < 0.4).double()
        right_N = left_N[torch.randperm(N, generator=draws)]
        count = float(left_N.sum())
        ends = [fixed_count_value(metric, rows_ND, w, count) for w in (left_N, right_N)]
        middle = fixed_count_value(metric, rows_ND, (left_N + right_N) / 2, count)
        excess.append(middle - sum(ends) / 2)
    assert min(excess) >= -1e-12
    assert max(excess) > 1e-6


def test_an_unknown_name_lists_the_names() -> None:
    with pytest.raises(UnknownNameError, match="Pair_simi"):
        METRICS.make("Pairsimi")


def test_an_option_that_a_metric_does_not_take() -> None:
    with pytest.raises(ConfigurationError, match="LogDet"):
        METRICS.make("LogDet", {"size": 3})


def test_members_are_found_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere(DiversityMetric):
        name = "Elsewhere"

        def values(self, embeddings_ND: torch.Tensor, masks_GN: torch.Tensor) -> torch.Tensor:
            return masks_GN.sum(1).double()

    class Point:
        name = "Elsewhere"

        def load(self) -> type[DiversityMetric]:
            return Elsewhere

    monkeypatch.setattr("datamask_pipeline.families.entry_points", lambda group: [Point()])
    families._classes.cache_clear()
    try:
        assert isinstance(METRICS.make("Elsewhere"), Elsewhere)
    finally:
        families._classes.cache_clear()


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        (
            "import",
            r"entry point 'Elsewhere = elsewhere:Metric' of package elsewhere .*ImportError: no libelse.*uninstall",
        ),
        ("attribute", r"entry point 'Elsewhere = elsewhere:Metric' of package elsewhere .*AttributeError"),
        ("name", r"'Elsewhere' has no `name`"),
        ("config", r"'Elsewhere' has no `Config`"),
    ],
)
def test_a_package_whose_member_cannot_be_had_is_named(
    fails: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere(DiversityMetric):
        def values(self, embeddings_ND: torch.Tensor, masks_GN: torch.Tensor) -> torch.Tensor:
            return masks_GN.sum(1).double()

    if fails == "config":
        Elsewhere.name, Elsewhere.Config = "Elsewhere", dict  # type: ignore[assignment]

    class Point:
        name, value = "Elsewhere", "elsewhere:Metric"
        dist = types.SimpleNamespace(name="elsewhere")

        def load(self) -> type[DiversityMetric]:
            if fails == "import":
                raise ImportError("no libelse")
            if fails == "attribute":
                raise AttributeError("module 'elsewhere' has no attribute 'Metric'")
            return Elsewhere

    monkeypatch.setattr("datamask_pipeline.families.entry_points", lambda group: [Point()])
    families._classes.cache_clear()
    try:
        with pytest.raises(ConfigurationError, match=told):
            METRICS.names()
    finally:
        families._classes.cache_clear()


ERROR = {"Vendi": 1e-7}
"""Where a model is exact to more than rounding: an integral by its nodes."""


@pytest.mark.parametrize("every", [3, 11])
@pytest.mark.parametrize("name", MOMENT_NAMES)
def test_swaps_are_followed_exactly(name: str, every: int, rows_ND: torch.Tensor) -> None:
    """With more and with fewer documents than dimensions."""
    metric = METRICS.make(name)
    assert isinstance(metric, MomentMetric)
    mask_N = torch.arange(N) % every == 0
    model = metric.exchange_model(moments_of(rows_ND, mask_N, True), rows_ND)
    assert model.follows
    for into, out in ((1, 0), (5, 33), (0, 1)):
        before = metric.value(moments_of(rows_ND, mask_N, True))
        outside, inside = np.flatnonzero(~mask_N), np.flatnonzero(mask_N)
        table = model.table(outside, inside)
        for row, column in ((0, 0), (3, 2), (int(np.flatnonzero(outside == into)[0]), -1)):
            moved_N = mask_N.clone()
            moved_N[outside[row]], moved_N[inside[column]] = True, False
            change = metric.value(moments_of(rows_ND, moved_N, True)) - before
            assert table[row, column] == pytest.approx(change, rel=1e-6, abs=ERROR.get(name, 1e-10))
        tangents = model.tangents()
        if tangents is not None:
            assert (table <= tangents[outside][:, None] - tangents[inside] + ERROR.get(name, 1e-10)).all()
        mask_N[into], mask_N[out] = True, False
        model.swap(into, out)


@pytest.mark.parametrize("count", [0, 3, 15])
@pytest.mark.parametrize("name", MOMENT_NAMES)
def test_a_model_that_knows_its_documents_is_that_of_their_moments(
    name: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In many dimensions, with a copy in the mask, and after exchanges; DiSF's in double precision."""
    monkeypatch.setattr(correlation_swaps, "SINGLE_FROM", 1_000)
    draws = torch.Generator().manual_seed(count)
    rows_ND = torch.nn.functional.normalize(torch.randn(40, 64, generator=draws, dtype=torch.float64))
    rows_ND[1] = rows_ND[0]
    mask_N = torch.arange(40) < count
    metric, inside = METRICS.make(name), np.arange(count)
    assert isinstance(metric, MomentMetric)
    moments = moments_of(rows_ND, mask_N, True)
    moments = moments if count or metric.moving_count else replace(moments, count=5.0)
    models = [metric.exchange_model(moments, rows_ND, known) for known in (None, inside)]
    outside, tolerance = np.arange(20, 40), 1e-6 if name == "DiSF" else 1e-9
    for into, out in ((21, 0), (22, 1)):
        of_moments, of_documents = (
            [model.additions()] + ([model.removals(inside), model.table(outside, inside)] if count else [])
            for model in models
        )
        for one, other in zip(of_moments, of_documents, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-7, atol=tolerance)
        if not count:
            break
        for model in models:
            model.swap(into, out)
        inside = np.array([into, *inside[inside != out]])
        outside = outside[outside != into]


def test_many_exchanges_of_documents_that_point_one_way_lose_no_digits() -> None:
    """Cosines of .5 and more, with fewer documents in the mask than dimensions."""
    draws = torch.Generator().manual_seed(0)
    rows_ND = torch.nn.functional.normalize(
        torch.randn(60, 96, generator=draws, dtype=torch.float64) + 0.14 * torch.ones(96).sqrt() * 8
    )
    mask_N, metric = torch.arange(60) < 20, METRICS.make("LogDet")
    assert isinstance(metric, MomentMetric)
    model = metric.exchange_model(moments_of(rows_ND, mask_N, True), rows_ND, np.arange(20))
    choose = np.random.default_rng(0)
    for _ in range(200):
        into, out = (
            int(choose.choice(np.flatnonzero(side_N))) for side_N in (~mask_N.numpy(), mask_N.numpy())
        )
        mask_N[into], mask_N[out] = True, False
        model.swap(into, out)
    fresh = metric.exchange_model(moments_of(rows_ND, mask_N, True), rows_ND)
    outside, inside = np.flatnonzero(~mask_N), np.flatnonzero(mask_N)
    np.testing.assert_allclose(model.additions(), fresh.additions(), atol=1e-12)
    np.testing.assert_allclose(model.table(outside, inside), fresh.table(outside, inside), atol=1e-12)


def test_a_sum_of_metrics_swaps_by_the_sum_of_their_changes(rows_ND: torch.Tensor) -> None:
    moments = moments_of(rows_ND, torch.arange(N) < 8, True)
    first, second = (METRICS.make(name).swap_model(moments, rows_ND) for name in ("DiSF_uncentred", "LogDet"))
    linear_N = np.linspace(0, 1, N)
    both = SummedSwaps(linear_N, [(2.0, first), (0.5, second)])
    outside, inside = np.arange(8, N), np.arange(8)
    expected = 2 * first.table(outside, inside) + second.table(outside, inside) / 2
    expected += linear_N[outside][:, None] - linear_N[inside]
    np.testing.assert_allclose(both.table(outside, inside), expected)
    np.testing.assert_allclose(both.additions(), linear_N + 2 * first.additions() + second.additions() / 2)


@pytest.mark.parametrize(
    ("dim", "inside"), [(D, None), (64, np.empty(0, np.int64))], ids=["of moments", "of few documents"]
)
@pytest.mark.parametrize("name", MOMENT_NAMES)
def test_additions_to_a_mask_that_is_filled_are_followed_exactly(
    name: str, dim: int, inside: NDArray[np.int64] | None
) -> None:
    """From no document on, what each further one adds is the change of the value at the final number of documents."""
    draws = torch.Generator().manual_seed(1)
    rows_ND = torch.nn.functional.normalize(torch.randn(N, dim, generator=draws, dtype=torch.float64) + 0.4)
    metric = METRICS.make(name)
    assert isinstance(metric, MomentMetric)
    size = 12
    mask_N = torch.zeros(N, dtype=torch.bool)
    nothing = moments_of(rows_ND, mask_N, True)
    model = metric.exchange_model(
        nothing if metric.moving_count else replace(nothing, count=float(size)), rows_ND, inside
    )
    for document in range(size):
        if document > 1:
            expected = [value_on_the_way(metric, rows_ND, mask_N, size, other) for other in range(20, N)]
            assert model.additions()[20:] == pytest.approx(expected, rel=1e-6, abs=1e-7)
        mask_N[document] = True
        model.add(document)


def value_on_the_way(
    metric: MomentMetric, rows_ND: torch.Tensor, mask_N: torch.Tensor, size: int, document: int
) -> float:
    more_N = mask_N.clone()
    more_N[document] = True
    values = []
    for part_N in (more_N, mask_N):
        found = moments_of(rows_ND, part_N, True)
        if metric.name == "Vendi":
            # Eigenvalues divided by the final number, as they do not sum to one before.
            shares = torch.linalg.eigvalsh(found.second_DD / size).clamp(min=1e-300)
            values.append(-float((shares * shares.log()).sum()))
        else:
            values.append(metric.value(found if metric.moving_count else replace(found, count=float(size))))
    return values[0] - values[1]


@pytest.mark.parametrize("name", ["DiSF", "DiSF_uncentred"])
@pytest.mark.parametrize(("dim", "shift"), [(8, 0.2), (64, 3.0), (200, 0.2)])
def test_values_of_masks_of_many_sizes_are_those_of_their_moments(name: str, dim: int, shift: float) -> None:
    """Alone and beside what is held; one dimension is zero throughout, one nearly the same for all."""
    draws = torch.Generator().manual_seed(dim)
    rows_ND = torch.randn(65, dim, generator=draws, dtype=torch.float64) + shift
    rows_ND[:, 3], rows_ND[:, 5] = 0, 2.0
    rows_ND = torch.nn.functional.normalize(rows_ND)
    held_HD, rows_ND = rows_ND[:25], rows_ND[25:]
    held = moments_of(held_HD, torch.ones(25, dtype=torch.bool), True)
    masks_GN = torch.zeros(6, 40, dtype=torch.bool)
    for mask_N, size in zip(masks_GN, (1, 2, 5, 5, 20, 36), strict=True):
        mask_N[torch.randperm(40, generator=draws)[:size]] = True
    metric = METRICS.make(name)
    assert isinstance(metric, MomentMetric)
    for found, expected in (
        (metric.values(rows_ND, masks_GN), MomentMetric.values(metric, rows_ND, masks_GN)),
        (
            metric.values_beside(held, rows_ND, masks_GN),
            MomentMetric.values_beside(metric, held, rows_ND, masks_GN),
        ),
    ):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
