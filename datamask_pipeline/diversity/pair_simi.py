"""Mean pairwise similarity. Knows no quality, budget or learner."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import DrawnGroup, LinearForm, MomentMetric, Moments, squared_norms


class PairSimilarity(MomentMetric):
    """Minus the mean cosine similarity of two different selected documents.

    Formula: ``-(|s|^2 - sum m_i |x_i|^2) / (K (K - 1))`` with ``s = sum m_i x_i``.
    Source: the ``Pair_simi`` of DATAMASK (arXiv 2512.24265).
    Cost: O(N d) a step. Concave in the relaxed mask.
    """

    name = "Pair_simi"
    needs_second = False
    concave = True
    quadratic = True
    exact_marginals = True

    def value(self, moments: Moments) -> float:
        return -(float(moments.first_D @ moments.first_D) - moments.squared) / _pairs(moments.count)

    def value_of_products(self, products_KK: Tensor, dim: int) -> float:
        del dim
        return -float(products_KK.sum() - products_KK.trace()) / _pairs(len(products_KK))

    def mean_over_masks(self, groups: Sequence[DrawnGroup], held: Moments | None = None) -> float:
        held = held or Moments.zero(len(groups[0].moments.first_D), needs_second=False)
        count, sum_D, total = held.count, held.first_D, float(held.first_D @ held.first_D) - held.squared
        for group in groups:
            first_D = group.moments.first_D
            total += group.pairs * (float(first_D @ first_D) - group.moments.squared)
            total += 2 * group.share * float(sum_D @ first_D)
            count, sum_D = count + group.count, sum_D + group.share * first_D
        return -total / _pairs(count)

    def gain_of_fewer(self, count: float, least: float) -> float:
        # The value is K / (K - 1) times the variance, less the mean of the |x_i|^2.
        return count / (count - 1) * least / (least - 1)

    def growth(self, moments: Moments) -> float:
        mean_D = moments.first_D / moments.count
        return -(moments.squared / moments.count - float(mean_D @ mean_D)) / (moments.count - 1) ** 2

    def form(self, moments: Moments) -> LinearForm:
        scale = 1 / _pairs(moments.count)
        return LinearForm(vector_D=-2 * scale * moments.first_D, matrix_DD=None, squared=scale)

    def common_with(self, shown: Moments) -> LinearForm:
        return LinearForm(vector_D=shown.first_D * (2 / shown.count), matrix_DD=None, squared=0.0)

    def interaction(self, moments: Moments, left_TD: Tensor, right_ND: Tensor) -> Tensor:
        return (left_TD @ right_ND.T) * (-2 / _pairs(moments.count))

    def self_products(self, moments: Moments, squared_N: Tensor) -> Tensor:
        return squared_N / _pairs(moments.count)

    def values(self, embeddings_ND: Tensor, masks_GN: Tensor) -> Tensor:
        weights_GN = masks_GN.to(embeddings_ND.dtype)
        sums_GD = (weights_GN @ embeddings_ND).to(torch.float64)
        squared_G = masks_GN.to(torch.float64) @ squared_norms(embeddings_ND)
        counts_G = masks_GN.sum(1).to(torch.float64)
        values_G: Tensor = -(torch.linalg.vecdot(sums_GD, sums_GD) - squared_G) / (counts_G * (counts_G - 1))
        return values_G


def _pairs(count: float) -> float:
    return count * (count - 1)


METRIC = PairSimilarity
