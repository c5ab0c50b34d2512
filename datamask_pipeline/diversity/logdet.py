"""The volume the selection spans. Knows no quality, budget or learner."""

from __future__ import annotations

import pydantic
import torch
from torch import Tensor

from datamask_pipeline.diversity.determinant_swaps import determinant_swaps
from datamask_pipeline.diversity.moments import LinearForm, MomentMetric, Moments, RowMarginals, squared_norms
from datamask_pipeline.diversity.spectrum import levelled
from datamask_pipeline.diversity.swap_models import Places, SwapModel
from datamask_pipeline.settings import Settings


class LogDetConfig(Settings):
    """How the data weigh against the identity."""

    scale: float | None = pydantic.Field(
        None,
        gt=0,
        le=1e6,  # Beyond it the noise of float32 products in empty directions outweighs the identity.
        description="Weight of the data against the identity; null is the embedding dimension, which makes the mean "
        "eigenvalue of the data one.",
    )


class LogDeterminant(MomentMetric):
    """Log-determinant of the regularised second-moment matrix.

    Formula: ``(1/d) log det(I + (scale/K) sum m_i x_i x_i')``.
    Source: the D-optimal design criterion; as a determinantal point process, Kulesza and Taskar 2012.
    Cost: O(N d^2 + d^3) a step. Concave in the relaxed mask, where fewer documents than dimensions count as what they
    can span (`diversity.spectrum`).
    """

    name = "LogDet"
    Config = LogDetConfig
    config: LogDetConfig
    needs_second = True
    concave = True
    spectral = True
    exact_marginals = True
    exact_exchanges = True

    def value(self, moments: Moments) -> float:
        return float(torch.linalg.slogdet(self._regularised(moments)).logabsdet) / len(moments.first_D)

    def value_of_products(self, products_KK: Tensor, dim: int) -> float:
        # Sylvester: the determinants of I + X'X and I + XX' are one number.
        count = len(products_KK)
        regularised_KK = products_KK * (self._weight(dim) / count) + torch.eye(count).to(products_KK)
        return float(torch.linalg.slogdet(regularised_KK).logabsdet) / dim

    def gain_of_fewer(self, count: float, least: float) -> float:
        del count, least
        return 0.0  # only shares count

    def form(self, moments: Moments) -> LinearForm:
        dim = len(moments.first_D)
        return LinearForm(
            vector_D=torch.zeros_like(moments.first_D),
            matrix_DD=self._inverse(moments) * (self._weight(dim) / moments.count / dim),
            squared=0.0,
        )

    def relaxed_value(self, moments: Moments) -> float:
        dim = len(moments.first_D)
        if moments.count >= dim:
            return self.value(moments)
        spectrum = levelled(torch.linalg.eigvalsh(self._weighted(moments)).flip(0), moments.count)
        return float(spectrum.weights_D @ spectrum.levels_D.log1p()) / dim

    def relaxed_form(self, moments: Moments) -> LinearForm:
        dim = len(moments.first_D)
        if moments.count >= dim:
            return self.form(moments)
        eigenvalues_D, vectors_DD = torch.linalg.eigh(self._weighted(moments))
        slopes_D = 1 / (1 + levelled(eigenvalues_D.flip(0), moments.count).levels_D.flip(0))
        return LinearForm(
            vector_D=torch.zeros_like(moments.first_D),
            matrix_DD=(vectors_DD * slopes_D) @ vectors_DD.T * (self._weight(dim) / moments.count / dim),
            squared=0.0,
        )

    def interaction(self, moments: Moments, left_TD: Tensor, right_ND: Tensor) -> Tensor:
        dim = len(moments.first_D)
        products_TN = (left_TD @ self._inverse(moments).to(left_TD)) @ right_ND.T
        return products_TN.mul_(self._weight(dim) / moments.count).square_().div_(-dim)

    def swap_model(self, moments: Moments, rows_TD: Tensor) -> SwapModel:
        # Few documents in many dimensions have leverages near one, where a second-order model is no guide.
        return self.exchange_model(moments, rows_TD)

    def exchange_model(self, moments: Moments, rows_TD: Tensor, inside_I: Places | None = None) -> SwapModel:
        dim = len(moments.first_D)
        return determinant_swaps(
            rows_TD.double().cpu(),
            self._regularised(moments).cpu(),
            weight=self._weight(dim) / moments.count,
            scale=1 / dim,
            count=round(moments.count),
            inside_I=inside_I,
        )

    def marginals_at(self, moments: Moments) -> RowMarginals:
        form, dim = self.form(moments), len(moments.first_D)

        def marginals(rows_nD: Tensor, weights_n: Tensor) -> Tensor:
            # The matrix determinant lemma: one row more or less multiplies the determinant by 1 +- its leverage.
            leverage_n = form.scores(rows_nD, squared_norms(rows_nD)) * dim
            sign_n = 1 - 2 * weights_n
            return sign_n * torch.log1p(sign_n * leverage_n) / dim

        return marginals

    def _inverse(self, moments: Moments) -> Tensor:
        inverse_DD: Tensor = torch.cholesky_inverse(torch.linalg.cholesky(self._regularised(moments)))
        return inverse_DD

    def _weight(self, dim: int) -> float:
        return float(dim) if self.config.scale is None else self.config.scale

    def _regularised(self, moments: Moments) -> Tensor:
        weighted_DD = self._weighted(moments)
        return weighted_DD + torch.eye(len(weighted_DD), dtype=torch.float64, device=weighted_DD.device)

    def _weighted(self, moments: Moments) -> Tensor:
        assert moments.second_DD is not None, "needs_second was honoured"
        return moments.second_DD * (self._weight(len(moments.first_D)) / moments.count)


METRIC = LogDeterminant
