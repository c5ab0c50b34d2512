"""The extension of metrics of eigenvalues to relaxed masks: the value at masks, concave, tight, with its own derivative."""

import itertools

import pytest
import torch

from datamask_pipeline.diversity.moments import MomentMetric, Moments, moments_of, squared_norms
from datamask_pipeline.diversity.spectrum import levelled
from datamask_pipeline.families import METRICS
from datamask_pipeline.selection.api import select_documents

N, D, K = 14, 8, 4
MOMENT_NAMES = [name for name, member in METRICS.classes().items() if issubclass(member, MomentMetric)]
SPECTRAL = [
    name
    for name in MOMENT_NAMES
    if METRICS.classes()[name].spectral or METRICS.classes()[name].levelled_below > D
]


def unit_rows(seed: int, num_rows: int = N) -> torch.Tensor:
    rows_ND = torch.randn(num_rows, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return rows_ND / rows_ND.norm(dim=1, keepdim=True)


def relaxed(rows_ND: torch.Tensor, seed: int) -> Moments:
    weights_N = torch.rand(len(rows_ND), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return moments_of(rows_ND, weights_N * (K / weights_N.sum()), True)


def made(name: str) -> MomentMetric:
    metric = METRICS.make(name)
    assert isinstance(metric, MomentMetric)
    return metric


def test_there_are_spectral_metrics() -> None:
    assert SPECTRAL == ["DiSF_uncentred", "LogDet", "Vendi"]


@pytest.mark.parametrize("name", MOMENT_NAMES)
@pytest.mark.parametrize("count", [2, 3, 7, 8, 11])
def test_at_binary_masks_it_is_the_value(name: str, count: int) -> None:
    for seed in range(10):
        found = moments_of(unit_rows(seed), torch.arange(N) < count, True)
        assert made(name).relaxed_value(found) == pytest.approx(made(name).value(found), abs=1e-9)


@pytest.mark.parametrize("name", SPECTRAL)
def test_between_masks_it_is_below_the_value_and_concave(name: str) -> None:
    metric, gained = made(name), 0
    for seed in range(40):
        rows_ND = unit_rows(seed)
        left, right = relaxed(rows_ND, 2 * seed + 1), relaxed(rows_ND, 2 * seed + 2)
        middle = left.plus(left, -0.5).plus(right, 0.5)
        mean = (metric.relaxed_value(left) + metric.relaxed_value(right)) / 2
        assert metric.relaxed_value(middle) >= mean - 1e-12
        assert metric.relaxed_value(middle) <= metric.value(middle) + 1e-12
        gained += metric.relaxed_value(middle) < metric.value(middle) - 1e-3
    assert gained == 40


@pytest.mark.parametrize("name", SPECTRAL)
def test_its_form_is_its_derivative(name: str) -> None:
    metric, rows_ND = made(name), unit_rows(3)
    found, step = relaxed(rows_ND, 5), 1e-6
    scores_N = metric.relaxed_form(found).scores(rows_ND, squared_norms(rows_ND))
    for row in range(N):
        values = []
        for sign in (-1, 1):
            # One document more or less at a fixed count, as the objective divides.
            moved = found.plus(moments_of(rows_ND[row : row + 1], torch.ones(1), True), sign * step)
            values.append(
                metric.relaxed_value(
                    Moments(count=K, first_D=moved.first_D, second_DD=moved.second_DD, squared=moved.squared)
                )
            )
        assert float(scores_N[row]) == pytest.approx((values[1] - values[0]) / (2 * step), rel=2e-4, abs=1e-6)


def test_levels_keep_the_sum_and_the_largest() -> None:
    for seed in range(50):
        draws = torch.Generator().manual_seed(seed)
        eigenvalues_D = (
            torch.rand(9, generator=draws, dtype=torch.float64).pow(4).sort(descending=True).values
        )
        for count in (1.0, 2.0, 5.0, 5.5, 8.0, 9.0, 20.0):
            spectrum = levelled(eigenvalues_D, count)
            assert float(spectrum.weights_D @ spectrum.levels_D) == pytest.approx(float(eigenvalues_D.sum()))
            assert float(spectrum.weights_D.sum()) + spectrum.num_zero == pytest.approx(9)
            assert (spectrum.levels_D.diff() <= 1e-12).all()
            if count <= 9:
                places = spectrum.weights_D.cumsum(0)
                spread = torch.cat([places.new_zeros(1), (spectrum.weights_D * spectrum.levels_D).cumsum(0)])
                # It majorises: its largest places hold no less than as many eigenvalues.
                for taken in range(1, int(count) + 1):
                    before = int((places <= taken + 1e-9).sum())
                    held = float(spread[before])
                    if before < 9:
                        held += (taken - (float(places[before - 1]) if before else 0.0)) * float(
                            spectrum.levels_D[before]
                        )
                    assert held >= float(eigenvalues_D[:taken].sum()) - 1e-9


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SPECTRAL)
@pytest.mark.parametrize("seed", range(3))
def test_no_mask_exceeds_the_bound_of_a_selection_smaller_than_its_dimensions(name: str, seed: int) -> None:
    rows_ND = unit_rows(seed + 100)
    quality_N = torch.randn(N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    result = select_documents(
        rows_ND.numpy(), quality_N.numpy(), diversity=name, num_documents=K, lamb=0.4, seed=seed
    )
    (zero, one), (low, high) = result.normalisation[name], result.normalisation["quality"]
    masks = [torch.tensor(chosen) for chosen in itertools.combinations(range(N), K)]
    values_G = made(name).values(
        rows_ND, torch.stack([torch.zeros(N, dtype=torch.bool).index_fill(0, c, True) for c in masks])
    )
    means_G = torch.stack([quality_N[chosen].mean() for chosen in masks])
    objective_G = 0.4 * (means_G - low) / (high - low) + 0.6 * (values_G - zero) / (one - zero)
    bound = result.certificate.bound
    assert bound is not None
    assert float(objective_G.max()) <= bound + 1e-6
    # Spread over all eight dimensions, four documents promised more than a quarter of the distance too much.
    assert bound - float(objective_G.max()) < 0.25 * (bound - result.objective.random)
