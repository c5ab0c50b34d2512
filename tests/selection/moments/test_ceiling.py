"""The bound by rank for DiSF: no mask exceeds it, dimensions that may be constant promise nothing, and it can be met."""

from itertools import combinations

import numpy as np
import pytest
import torch

from datamask_pipeline import select_documents
from datamask_pipeline.diversity.disf import DiSF
from datamask_pipeline.selection.moments.ceiling import least_correlated, surely_varying
from datamask_pipeline.selection.moments.statistics import Statistics, squared_of
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.rows import MemoryRows

N, D, K = 12, 6, 4


def drawn(seed: int, copies: int) -> torch.Tensor:
    draws = torch.Generator().manual_seed(seed)
    rows_ND = torch.randn(N, D, generator=draws, dtype=torch.float64) + 0.4
    rows_ND[1:copies] = rows_ND[0]
    return torch.nn.functional.normalize(rows_ND).float()


def varying(rows_ND: torch.Tensor) -> int:
    with Workers(1) as workers:
        rows = MemoryRows(rows_ND, 64)
        squared_N = squared_of(rows, workers)
        statistics = Statistics(rows=rows, workers=workers, squared_N=squared_N, needs_second=True)
        return surely_varying(statistics, K)


@pytest.mark.parametrize("copies", [0, 3, 4, 6])
def test_no_mask_correlates_less(copies: int) -> None:
    for seed in range(4):
        rows_ND = drawn(seed, copies)
        least = least_correlated(varying(rows_ND), K - 1)
        if copies == 0:
            assert least == pytest.approx(D - D**2 / (K - 1))
        if copies >= K:
            assert least == 0.0
        masks_GN = torch.tensor(
            [np.isin(np.arange(N), chosen).tolist() for chosen in combinations(range(N), K)]
        )
        best = float(DiSF().values(rows_ND.double(), masks_GN).max())
        assert best <= least + 1e-6


def test_it_is_met_where_directions_count_alike() -> None:
    """Four documents at the corners of a regular simplex: three directions, as many dimensions, no correlation."""
    corners = torch.tensor([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=torch.float64)
    both = torch.cat([corners, corners], dim=1)
    value = float(DiSF().values(both, torch.ones(1, 4, dtype=torch.bool))[0])
    assert value == pytest.approx(least_correlated(6, 3.0))


@pytest.mark.slow
def test_a_selection_of_disf_has_a_bound_and_one_in_tokens_has_none() -> None:
    rows_ND, quality_N = drawn(0, 0).numpy(), np.linspace(0, 1, N)
    found = select_documents(rows_ND, quality_N, num_documents=K, diversity="DiSF", num_workers=1)
    assert found.certificate.bound is not None
    assert found.certificate.bound >= found.objective.value
    assert found.certificate.method.startswith("rank")
    assert found.certified_at == {}
    tokens = select_documents(
        rows_ND, quality_N, num_tokens=50, token_counts=np.full(N, 10), diversity="DiSF", num_workers=1
    )
    assert tokens.certificate.bound is None


@pytest.mark.slow
def test_dimensions_of_next_to_nothing_promise_nothing() -> None:
    """Eight of sixteen dimensions are so small that correlations leave them out: they do not count as varying."""
    draws = np.random.default_rng(0)
    rows_ND = draws.standard_normal((60, 16))
    rows_ND[:, 8:] *= 3e-7
    found = select_documents(
        rows_ND.astype(np.float32), np.zeros(60), num_documents=6, diversity="DiSF", lamb=0.0, num_workers=1
    )
    assert found.certificate.bound is not None
    assert found.certificate.gap > 0.01
