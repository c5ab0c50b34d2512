"""Decorrelation of the selected features. Knows no quality, budget or learner."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from datamask_pipeline.diversity.correlation import (
    LOOKING,
    Moved,
    correlation,
    numbers_moved,
    reciprocal_deviations,
    squared_correlations,
)
from datamask_pipeline.diversity.correlation_swaps import CorrelationSwaps
from datamask_pipeline.diversity.moments import LinearForm, MomentMetric, Moments, RowMarginals
from datamask_pipeline.diversity.swap_models import Places, SwapModel

MASKS_AT_ONCE = 8


class DiSF(MomentMetric):
    """Minus the squared off-diagonal correlations of the selected features.

    Formula: ``-sum_{a != b} C_ab^2``, C the correlation matrix of the dimensions inside the selection.
    Source: DiSF (arXiv 2504.14508), the ``DiSF`` of DATAMASK; its code divides by 10 000, this does not.
    Cost: O(N d^2) a step. Not concave; certified by its rank alone (`selection.moments.ceiling`). Marginals are exact;
    the number of documents moves with the document, since correlations have no form at another number. Fewer than two
    documents have the value 0. A dimension whose variance inside the selection is below a millionth of its second moment
    counts as constant and correlates with nothing, since float32 products tell no less: of a few documents some dimensions
    do so by chance. So does one whose variance is below 1e-12, as unit vectors go. Of two documents, whose correlations are
    all 1 or -1, nothing else would tell masks apart.
    """

    name = "DiSF"
    needs_second = True
    concave = False
    exact_marginals = True
    exact_exchanges = True
    moving_count = True
    least_documents = 3

    def value(self, moments: Moments) -> float:
        return -squared_correlations(moments)

    def form(self, moments: Moments) -> LinearForm:
        correlation_DD, inverse_D, mean_D = correlation(moments)
        gradient_DD = correlation_DD * (-2 * inverse_D[:, None] * inverse_D)
        gradient_DD += torch.diag(2 * correlation_DD.square().sum(1) * inverse_D.square())
        return LinearForm(
            vector_D=(gradient_DD @ mean_D) * (-2 / moments.count),
            matrix_DD=gradient_DD / moments.count,
            squared=0.0,
        )

    def interaction(self, moments: Moments, left_TD: Tensor, right_ND: Tensor) -> Tensor:
        # Means and deviations held fixed; exact only to first order in what they move.
        _, inverse_D, mean_D = (part.to(left_TD.device) for part in correlation(moments))
        left_TD = ((left_TD - mean_D) * inverse_D).to(left_TD.dtype)
        right_ND = ((right_ND - mean_D) * inverse_D).to(right_ND.dtype)
        products_TN = (left_TD @ right_ND.T).square_()
        products_TN -= left_TD.square() @ right_ND.square().T
        return products_TN.mul_(-2 / moments.count**2)

    def exchange_model(self, moments: Moments, rows_TD: Tensor, inside_I: Places | None = None) -> SwapModel:
        return CorrelationSwaps(moments, rows_TD, inside_I)

    def swap_work(self, num_rows: int, count: float, dim: int) -> float:
        return num_rows * numbers_moved(count, dim) + LOOKING

    def marginals_at(self, moments: Moments) -> RowMarginals:
        join, leave = Moved(moments, 1), Moved(moments, -1)

        def marginals(rows_nD: Tensor, weights_n: Tensor) -> Tensor:
            changes_n = torch.empty_like(weights_n)
            joins_n = weights_n < 0.5
            if bool(joins_n.any()):
                changes_n[joins_n] = join.change(rows_nD[joins_n])
            if not bool(joins_n.all()):
                # A document may be most of a dimension: what is left without it is a small difference.
                changes_n[~joins_n] = leave.change(rows_nD[~joins_n].double())
            return changes_n

        return marginals

    def values(self, embeddings_ND: Tensor, masks_GN: Tensor) -> Tensor:
        counts_G = masks_GN.sum(1)
        values_G = torch.zeros(len(masks_GN), dtype=torch.float64, device=embeddings_ND.device)
        for size in sorted({size for size in counts_G.tolist() if size > 1}):
            for places in torch.split((counts_G == size).nonzero().squeeze(1), MASKS_AT_ONCE):
                rows_GKD = embeddings_ND[masks_GN[places].nonzero()[:, 1]].view(len(places), size, -1)
                values_G[places] = _values_of_equal_sizes(rows_GKD)
        return values_G

    def values_beside(self, held: Moments, embeddings_ND: Tensor, masks_GN: Tensor) -> Tensor:
        # With u the reciprocal variances, H the second moments of what is held, and w the documents' vectors and the mean,
        # covariances are H / n plus outer products of w, and u'(cov squared)u is a sum over H and products of w.
        assert held.second_DD is not None, "needs_second was honoured"
        rows, inverses, parts = [], [], []
        for mask_N in masks_GN:
            rows_KD = embeddings_ND[mask_N.nonzero().squeeze(1)].double().cpu()
            count = held.count + len(rows_KD)
            mean_D = (held.first_D + rows_KD.sum(0)) / count
            second_D = (held.second_DD.diagonal() + rows_KD.square().sum(0)) / count
            rows.append(torch.cat([rows_KD / math.sqrt(count), mean_D[None]]))
            inverses.append(reciprocal_deviations(second_D - mean_D.square(), second_D).square())
            parts.append(count)
        inverse_GD, count_G = torch.stack(inverses), torch.tensor(parts, dtype=torch.float64)
        scaled = [rows_JD * inverse_D for rows_JD, inverse_D in zip(rows, inverses, strict=True)]
        total_G = torch.linalg.vecdot(inverse_GD @ held.second_DD.square(), inverse_GD) / count_G.square()
        within = torch.linalg.vecdot(torch.cat(scaled) @ held.second_DD, torch.cat(scaled))
        for mask, within_J in enumerate(torch.split(within, [len(rows_JD) for rows_JD in rows])):
            products_JJ = (scaled[mask] @ rows[mask].T).square()
            products_JJ[-1] *= -1  # the mean's outer product is taken away
            products_JJ[:, -1] *= -1
            within_J[-1] *= -1
            total_G[mask] += 2 * within_J.sum() / count_G[mask] + products_JJ.sum()
        return (inverse_GD > 0).sum(1) - total_G


def _values_of_equal_sizes(rows_GKD: Tensor) -> Tensor:
    num_rows, dim = rows_GKD.shape[1:]
    second_moments_GD = rows_GKD.square().mean(1)
    centred_GKD = rows_GKD - rows_GKD.mean(1, keepdim=True)
    inverse_GD = reciprocal_deviations(centred_GKD.square().mean(1), second_moments_GD)
    standardised_GKD = centred_GKD * inverse_GD[:, None]
    transposed_GDK = standardised_GKD.mT
    # |Z'Z| = |ZZ'|: the smaller of both products.
    if num_rows < dim:
        products = standardised_GKD @ transposed_GDK / num_rows
    else:
        products = transposed_GDK @ standardised_GKD / num_rows
    totals_G = products.square().sum((1, 2), dtype=torch.float64)
    return (inverse_GD > 0).sum(1) - totals_G


METRIC = DiSF
