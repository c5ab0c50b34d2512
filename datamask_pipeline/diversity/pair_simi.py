"""Mean pairwise similarity. Knows no quality, budget or learner."""

from __future__ import annotations

import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import LinearForm, MomentMetric, Moments, RowMarginals, squared_norms


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

    def mean_over_masks(self, sample: Moments, fourth: float, count: float) -> float:
        return self.value(sample)  # every pair is as likely as any other

    def form(self, moments: Moments) -> LinearForm:
        scale = 1 / _pairs(moments.count)
        return LinearForm(vector_D=-2 * scale * moments.first_D, matrix_DD=None, squared=scale)

    def interaction(self, moments: Moments, left_TD: Tensor, right_ND: Tensor) -> Tensor:
        return (left_TD @ right_ND.T) * (-2 / _pairs(moments.count))

    def marginals_at(self, moments: Moments) -> RowMarginals:
        form, scale = self.form(moments), 1 / _pairs(moments.count)

        def marginals(rows_nD: Tensor, weights_n: Tensor) -> Tensor:
            # The relaxed derivative counts a document's product with itself; the change on moving it does not.
            squared_n = squared_norms(rows_nD)
            return form.scores(rows_nD, squared_n) + (2 * weights_n - 1) * squared_n * scale

        return marginals

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
