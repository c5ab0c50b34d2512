"""The effective number of directions. Knows no quality, budget or learner."""

from __future__ import annotations

import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import LinearForm, MomentMetric, Moments


class Vendi(MomentMetric):
    """Logarithm of the Vendi score of order 1 with the cosine kernel.

    Formula: ``-sum_k l_k log l_k`` over the eigenvalues of ``C / tr C``, ``C = sum m_i x_i x_i'``; its exponential
    is the Vendi score, an effective number of directions.
    Source: Friedman and Dieng 2023 (arXiv 2210.02410).
    Cost: O(N d^2 + d^3) a step. The entropy is concave in the relaxed mask for unit rows; its exponential is not.
    """

    name = "Vendi"
    needs_second = True
    concave = True
    exact_marginals = False

    def value(self, moments: Moments) -> float:
        return float(_entropy(torch.linalg.eigvalsh(_density(moments))).sum())

    def form(self, moments: Moments) -> LinearForm:
        eigenvalues_D, vectors_DD = torch.linalg.eigh(_density(moments))
        slopes_D = -1 - eigenvalues_D.clamp(min=FLOOR).log()
        return LinearForm(
            vector_D=torch.zeros_like(moments.first_D),
            matrix_DD=(vectors_DD * slopes_D) @ vectors_DD.T / moments.squared,
            squared=-float(eigenvalues_D @ slopes_D) / moments.squared,
        )


FLOOR = 1e-9
"""Below this eigenvalue ``-l log l`` continues as its tangent: still concave, its slope no longer infinite on
directions that nobody covers. The value changes by less than d times this."""


def _entropy(eigenvalues_D: Tensor) -> Tensor:
    safe_D = eigenvalues_D.clamp(min=FLOOR)
    return -safe_D * safe_D.log() - (1 + safe_D.log()) * (eigenvalues_D - safe_D)


def _density(moments: Moments) -> Tensor:
    assert moments.second_DD is not None, "needs_second was honoured"
    return moments.second_DD / moments.squared


METRIC = Vendi
