"""Forms and second moments made of half the products are those made of all."""

import pytest
import torch

from datamask_pipeline.products import QuadraticForm, second_moment


@pytest.mark.parametrize("dim", [1, 24, 128, 300])
@pytest.mark.parametrize(
    ("dtype", "resolved"), [(torch.float64, 1e-13), (torch.float32, 1e-5), (torch.bfloat16, 2e-2)]
)
def test_a_form_is_the_whole_product_by_its_rows(dim: int, dtype: torch.dtype, resolved: float) -> None:
    draws = torch.Generator().manual_seed(dim)
    rows_ND = torch.randn(1_500, dim, generator=draws, dtype=torch.float64) / dim**0.5
    matrix_DD = torch.randn(dim, dim, generator=draws, dtype=torch.float64)
    whole_N = ((rows_ND @ matrix_DD) * rows_ND).sum(1)
    values_N = QuadraticForm(matrix_DD, dtype, rows_ND.device).of(rows_ND.to(dtype))
    assert values_N.dtype == torch.float64
    assert float((values_N - whole_N).abs().max()) < resolved * float(whole_N.abs().max())


@pytest.mark.parametrize("dim", [1, 24, 128, 300])
def test_a_second_moment_is_the_whole_product_and_symmetric(dim: int) -> None:
    draws = torch.Generator().manual_seed(dim)
    rows_ND = torch.randn(200, dim, generator=draws)
    weighted_ND = rows_ND * torch.randn(200, 1, generator=draws)
    second_DD = second_moment(rows_ND, weighted_ND)
    assert torch.equal(second_DD, second_DD.T)
    torch.testing.assert_close(second_DD, weighted_ND.T @ rows_ND, rtol=1e-4, atol=1e-3)
