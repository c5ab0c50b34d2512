"""The effective number of directions. Knows no quality, budget or learner."""

from __future__ import annotations

import torch
from torch import Tensor

from datamask_pipeline.diversity.entropy_swaps import NODES as SWAP_NODES
from datamask_pipeline.diversity.entropy_swaps import EntropySwaps
from datamask_pipeline.diversity.moments import LinearForm, MomentMetric, Moments, RowMarginals
from datamask_pipeline.diversity.spectrum import levelled
from datamask_pipeline.diversity.swap_models import Places, SwapModel


class Vendi(MomentMetric):
    """Logarithm of the Vendi score of order 1 with the cosine kernel.

    Formula: ``-sum_k l_k log l_k`` over the eigenvalues of ``C / tr C``, ``C = sum m_i x_i x_i'``; its exponential
    is the Vendi score, an effective number of directions.
    Source: Friedman and Dieng 2023 (arXiv 2210.02410).
    Cost: O(N d^2 + d^3) a step. The entropy is concave in the relaxed mask for unit rows; its exponential is not. Fewer
    documents than dimensions count as what they can span (`diversity.spectrum`).
    Marginals are exact to what their integral over `NODES` leaves, 1e-9. The value of an empty mask is 0.
    """

    name = "Vendi"
    needs_second = True
    concave = True
    spectral = True
    exact_marginals = True
    exact_exchanges = True

    def value(self, moments: Moments) -> float:
        return float(_entropy(torch.linalg.eigvalsh(_density(moments))).sum())

    def value_of_products(self, products_KK: Tensor, dim: int) -> float:
        # C has the eigenvalues of the products, and zeros.
        density_KK = products_KK / max(float(products_KK.trace()), TINY)
        empty = float(_entropy(torch.zeros(1, dtype=torch.float64)))
        return float(_entropy(torch.linalg.eigvalsh(density_KK)).sum()) + (dim - len(products_KK)) * empty

    def gain_of_fewer(self, count: float, least: float) -> float:
        del count, least
        return 0.0  # only shares count

    def form(self, moments: Moments) -> LinearForm:
        eigenvalues_D, vectors_DD = torch.linalg.eigh(_density(moments))
        return _form(moments, eigenvalues_D, vectors_DD, eigenvalues_D)

    def relaxed_value(self, moments: Moments) -> float:
        spectrum = levelled(torch.linalg.eigvalsh(_density(moments)).flip(0), moments.count)
        entropies_D, empty = _entropy(spectrum.levels_D), _entropy(torch.zeros(1, dtype=torch.float64))
        return float(spectrum.weights_D @ entropies_D + spectrum.num_zero * empty)

    def relaxed_form(self, moments: Moments) -> LinearForm:
        eigenvalues_D, vectors_DD = torch.linalg.eigh(_density(moments))
        levels_D = levelled(eigenvalues_D.flip(0), moments.count).levels_D.flip(0)
        return _form(moments, eigenvalues_D, vectors_DD, levels_D)

    def exchange_model(self, moments: Moments, rows_TD: Tensor, inside_I: Places | None = None) -> SwapModel:
        resolution = EXACT if rows_TD.dtype == torch.float64 else SINGLE
        return EntropySwaps(
            rows_TD.double().cpu(), _second(moments).cpu(), moments.count, resolution, inside_I
        )

    def swap_work(self, num_rows: int, count: float, dim: int) -> float:
        return num_rows * min(count, dim) * (min(count, dim) + len(SWAP_NODES))

    def marginals_at(self, moments: Moments) -> RowMarginals:
        eigenvalues_D, vectors_DD = torch.linalg.eigh(_density(moments))
        eigenvalues_D = eigenvalues_D.clamp(min=0)
        scale = 1 / max(moments.squared, TINY)
        nodes_J = NODES.to(eigenvalues_D.device)
        inverse_DJ = 1 / (eigenvalues_D[:, None] + nodes_J)
        energy, total = float(torch.xlogy(eigenvalues_D, eigenvalues_D).sum()), float(eigenvalues_D.sum())
        before = _entropy_of(
            torch.tensor(total, dtype=torch.float64), torch.tensor(energy, dtype=torch.float64)
        )

        def marginals(rows_nD: Tensor, weights_n: Tensor) -> Tensor:
            shares_nD = (rows_nD @ vectors_DD.to(rows_nD)).to(torch.float64).square_().mul_(scale)
            mass_n1 = shares_nD.sum(1, keepdim=True)
            sign_n1 = (1 - 2 * weights_n)[:, None]
            inverse_on_rows_DJ = inverse_DJ.to(rows_nD.device)
            leverage_nJ = shares_nD @ inverse_on_rows_DJ
            slope_nJ = shares_nD @ inverse_on_rows_DJ.square()
            nodes_on_rows_J = nodes_J.to(rows_nD.device)
            # How the resolvent's trace moves, times t; eigenvalues interlace, which bounds it by one.
            share_nJ = (nodes_on_rows_J * slope_nJ / (1 + sign_n1 * leverage_nJ)).nan_to_num(nan=1.0)
            share_nJ = torch.where(share_nJ < 0, 1.0, share_nJ.clamp(max=1))
            integrand_nJ = mass_n1 / (1 + nodes_on_rows_J) - share_nJ
            moved_n = STEP * (integrand_nJ @ nodes_on_rows_J)
            sign_n = sign_n1[:, 0]
            after_n = _entropy_of(total + sign_n * mass_n1[:, 0], energy + sign_n * moved_n)
            return sign_n * (after_n - before.to(rows_nD.device))

        return marginals


TINY = 1e-12
SINGLE, EXACT = 1e-6, 1e-12
"""What float32 and float64 sums resolve of a share of the largest eigenvalue."""
STEP = 0.7
NODES = torch.arange(-45, 41, dtype=torch.float64).mul(STEP).exp()
"""Where ``x log x = integral over t of x / (1 + t) - x / (x + t)`` is sampled, evenly in log t: the rule's error is
``exp(-2 pi^2 / STEP)``, what lies outside is as small."""

FLOOR = 1e-9
"""Below this eigenvalue ``-l log l`` continues as its tangent: still concave, its slope no longer infinite on
directions that nobody covers. The value changes by less than d times this."""


def _entropy(eigenvalues_D: Tensor) -> Tensor:
    safe_D = eigenvalues_D.clamp(min=FLOOR)
    return -safe_D * safe_D.log() - (1 + safe_D.log()) * (eigenvalues_D - safe_D)


def _entropy_of(total: Tensor, energy: Tensor) -> Tensor:
    """Entropy of eigenvalues divided by their total, from it and their sum of ``l log l``; 0 where there is none."""
    safe = total.clamp(min=TINY)
    return torch.where(total > TINY, safe.log() - energy / safe, 0.0)


def _form(moments: Moments, eigenvalues_D: Tensor, vectors_DD: Tensor, levels_D: Tensor) -> LinearForm:
    """The derivative where the entropy has the slope that it has at these levels along the eigenvectors."""
    slopes_D = -1 - levels_D.clamp(min=FLOOR).log()
    return LinearForm(
        vector_D=torch.zeros_like(moments.first_D),
        matrix_DD=(vectors_DD * slopes_D) @ vectors_DD.T / moments.squared,
        squared=-float(eigenvalues_D @ slopes_D) / moments.squared,
    )


def _density(moments: Moments) -> Tensor:
    return _second(moments) / max(moments.squared, TINY)


def _second(moments: Moments) -> Tensor:
    assert moments.second_DD is not None, "needs_second was honoured"
    return moments.second_DD


METRIC = Vendi
