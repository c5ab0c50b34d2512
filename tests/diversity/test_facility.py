"""Facility location against its definition."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from datamask_pipeline.diversity import coverage
from datamask_pipeline.diversity.facility import FacilityConfig, FacilityLocation
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.families import METRICS


def block(num_rows: int = 50) -> tuple[torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(0)
    rows_ND = torch.nn.functional.normalize(torch.randn(num_rows, 6, generator=draws))
    masks_GN = torch.rand(7, num_rows, generator=draws) < 0.15
    masks_GN[:, :2] = True
    return rows_ND, masks_GN


def by_definition(rows_ND, mask_N, references):
    chosen = torch.nonzero(mask_N).squeeze(1).tolist()
    best = [max(max(0.0, float(rows_ND[y] @ rows_ND[x])) for x in chosen) for y in references]
    return sum(best) / len(best)


@pytest.mark.parametrize("num_masks", [1, 7])
def test_values_are_the_definition(num_masks):
    rows_ND, masks_GN = block()
    values_G = FacilityLocation().values(rows_ND, masks_GN[:num_masks])
    assert values_G.dtype == torch.float64
    expected = [by_definition(rows_ND, mask_N, range(50)) for mask_N in masks_GN[:num_masks]]
    assert values_G.tolist() == pytest.approx(expected, abs=1e-6)


def test_landmarks_stand_for_larger_blocks():
    rows_ND, masks_GN = block()
    metric = FacilityLocation(FacilityConfig(exact_rows=49, num_landmarks=20, seed=3))
    references_V = metric.references(50)
    assert len(references_V) == 20
    assert references_V.tolist() == sorted(set(references_V.tolist()))
    expected = [by_definition(rows_ND, mask_N, references_V.tolist()) for mask_N in masks_GN]
    assert metric.values(rows_ND, masks_GN).tolist() == pytest.approx(expected, abs=1e-6)
    assert metric.references(49).tolist() == list(range(49))
    other = FacilityLocation(FacilityConfig(exact_rows=49, num_landmarks=20, seed=4)).references(50)
    assert not torch.equal(references_V, other)


@pytest.mark.parametrize(
    "metric", [FacilityLocation(), FacilityLocation(FacilityConfig(exact_rows=10, num_landmarks=15))]
)
def test_marginals_are_finite_differences(metric):
    rows_ND, masks_GN = block()
    marginals_N = metric.marginals(rows_ND, masks_GN[0])
    value = float(metric.values(rows_ND, masks_GN[:1]))
    for document in range(50):
        moved_N = masks_GN[0].clone()
        moved_N[document] = ~moved_N[document]
        moved = float(metric.values(rows_ND, moved_N[None]))
        assert float(marginals_N[document]) == pytest.approx(abs(value - moved), abs=1e-6)


def test_a_reference_set_cannot_be_empty():
    with pytest.raises(ConfigurationError, match="num_landmarks"):
        METRICS.make("Facility", {"num_landmarks": 0})


def test_value_and_marginals_are_the_metrics_own_on_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(coverage, "TILE_DOCUMENTS", 64)
    monkeypatch.setattr(coverage, "TILE_REFERENCES", 50)
    draws = torch.Generator().manual_seed(7)
    rows_ND = torch.nn.functional.normalize(torch.randn(300, 12, generator=draws) + 0.5)
    mask_N = torch.rand(300, generator=draws) < 0.1
    metric = FacilityLocation(FacilityConfig(exact_rows=50, num_landmarks=70))
    found = [coverage.value_and_marginals(rows_ND, metric.references(300), mask_N)]
    with ThreadPoolExecutor(2) as pool:
        found.append(coverage.value_and_marginals(rows_ND, metric.references(300), mask_N, pool.map))
    assert (
        found[0][0] == found[1][0] == pytest.approx(float(metric.values(rows_ND, mask_N[None])[0]), abs=1e-7)
    )
    assert torch.equal(found[0][1], found[1][1])
