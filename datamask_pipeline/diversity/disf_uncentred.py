"""The energy of the selection's second-moment matrix. Knows no quality, budget or learner."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import DrawnGroup, LinearForm, MomentMetric, Moments
from datamask_pipeline.diversity.spectrum import levelled


class DiSFUncentred(MomentMetric):
    """Minus the squared Frobenius norm of the uncentred second-moment matrix.

    Formula: ``-|| (1/K) sum m_i x_i x_i' ||_F^2``, which is ``-(1/K^2) sum_ij m_i m_j (x_i . x_j)^2``.
    Source: the concave relative of DiSF's decorrelation (arXiv 2504.14508), used by DATAMASK as ``DiSF``.
    Cost: O(N d^2) a step for the whole block, no dependence on the number of rollouts. Concave in the relaxed mask, where
    fewer documents than dimensions count as what they can span (`diversity.spectrum`), unless there are many dimensions:
    eigenvalues then take longer than all else.
    """

    name = "DiSF_uncentred"
    needs_second = True
    concave = True
    quadratic = True
    levelled_below = 256
    exact_marginals = True

    def value(self, moments: Moments) -> float:
        return -float((_second(moments) / moments.count).square().sum())

    def value_of_products(self, products_KK: Tensor, dim: int) -> float:
        del dim
        return -float((products_KK / len(products_KK)).square().sum())

    def mean_over_masks(self, groups: Sequence[DrawnGroup], held: Moments | None = None) -> float:
        held = held or Moments.zero(len(groups[0].moments.first_D), needs_second=True)
        count, sum_DD = held.count, _second(held)
        total = float(sum_DD.square().sum())
        for group in groups:
            second_DD = _second(group.moments)
            # A mask holds each of its documents' product with itself, too.
            total += group.share * group.fourth
            total += group.pairs * (float(second_DD.square().sum()) - group.fourth)
            total += 2 * group.share * float((sum_DD * second_DD).sum())
            count, sum_DD = count + group.count, sum_DD + group.share * second_DD
        return -total / count**2

    def gain_of_fewer(self, count: float, least: float) -> float:
        del count, least
        return 0.0  # only shares count

    def form(self, moments: Moments) -> LinearForm:
        return LinearForm(
            vector_D=torch.zeros_like(moments.first_D),
            matrix_DD=_second(moments) * (-2 / moments.count**2),
            squared=0.0,
        )

    def relaxed_value(self, moments: Moments) -> float:
        if not self._levels(moments):
            return self.value(moments)
        spectrum = levelled(torch.linalg.eigvalsh(_second(moments) / moments.count).flip(0), moments.count)
        return -float(spectrum.weights_D @ spectrum.levels_D.square())

    def relaxed_form(self, moments: Moments) -> LinearForm:
        if not self._levels(moments):
            return self.form(moments)
        eigenvalues_D, vectors_DD = torch.linalg.eigh(_second(moments) / moments.count)
        levels_D = levelled(eigenvalues_D.flip(0), moments.count).levels_D.flip(0)
        return LinearForm(
            vector_D=torch.zeros_like(moments.first_D),
            matrix_DD=(vectors_DD * (-2 * levels_D)) @ vectors_DD.T / moments.count,
            squared=0.0,
        )

    def _levels(self, moments: Moments) -> bool:
        return moments.count < len(moments.first_D) < self.levelled_below

    def common_with(self, shown: Moments) -> LinearForm:
        matrix_DD = _second(shown) * (2 / shown.count)
        return LinearForm(vector_D=torch.zeros_like(shown.first_D), matrix_DD=matrix_DD, squared=0.0)

    def interaction(self, moments: Moments, left_TD: Tensor, right_ND: Tensor) -> Tensor:
        return (left_TD @ right_ND.T).square_().mul_(-2 / moments.count**2)

    def self_products(self, moments: Moments, squared_N: Tensor) -> Tensor:
        return squared_N.square() / moments.count**2

    def values(self, embeddings_ND: Tensor, masks_GN: Tensor) -> Tensor:
        # One Gram matrix of the batch serves every mask: G products of N x N instead of G matrices of D x D.
        if len(embeddings_ND) > masks_GN.shape[0] * embeddings_ND.shape[1]:
            return super().values(embeddings_ND, masks_GN)
        kernel_NN = (embeddings_ND @ embeddings_ND.T).square_()
        weights_GN = masks_GN.to(embeddings_ND.dtype)
        totals_G = torch.linalg.vecdot(weights_GN @ kernel_NN, weights_GN).to(torch.float64)
        values_G: Tensor = -totals_G / masks_GN.sum(1).to(torch.float64).square()
        return values_G

    def values_beside(self, held: Moments, embeddings_ND: Tensor, masks_GN: Tensor) -> Tensor:
        second_DD, values = _second(held), []
        rows = [embeddings_ND[mask_N.nonzero().squeeze(1)].double().cpu() for mask_N in masks_GN]
        beside = torch.linalg.vecdot(torch.cat(rows) @ second_DD, torch.cat(rows))
        alone = float(second_DD.square().sum())
        for rows_KD, beside_K in zip(rows, torch.split(beside, list(map(len, rows))), strict=True):
            total = alone + 2 * float(beside_K.sum()) + float((rows_KD @ rows_KD.T).square().sum())
            values.append(-total / (held.count + len(rows_KD)) ** 2)
        return torch.tensor(values, dtype=torch.float64)


def _second(moments: Moments) -> Tensor:
    assert moments.second_DD is not None, "needs_second was honoured"
    return moments.second_DD


METRIC = DiSFUncentred
