"""Decorrelation of the selected features. Knows no quality, budget or learner."""

from __future__ import annotations

import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import LinearForm, MomentMetric, Moments, RowMarginals

CONSTANT = 1e-6
"""A dimension whose variance is below this share of its second moment is constant: it correlates with nothing."""

MASKS_AT_ONCE = 8


class DiSF(MomentMetric):
    """Minus the squared off-diagonal correlations of the selected features.

    Formula: ``-sum_{a != b} C_ab^2``, C the correlation matrix of the dimensions inside the selection.
    Source: DiSF (arXiv 2504.14508), the ``DiSF`` of DATAMASK; its code divides by 10 000, this does not.
    Cost: O(N d^2) a step. Not concave, so no certificate. Marginals are exact; the number of documents moves with
    the document, since correlations have no form at another number. Fewer than two documents have the value 0.
    """

    name = "DiSF"
    needs_second = True
    concave = False
    exact_marginals = True
    moving_count = True

    def value(self, moments: Moments) -> float:
        correlation_DD, _, _ = _correlation(moments)
        return -float(correlation_DD.square().sum())

    def form(self, moments: Moments) -> LinearForm:
        correlation_DD, inverse_D, mean_D = _correlation(moments)
        gradient_DD = correlation_DD * (-2 * inverse_D[:, None] * inverse_D)
        gradient_DD += torch.diag(2 * correlation_DD.square().sum(1) * inverse_D.square())
        return LinearForm(
            vector_D=(gradient_DD @ mean_D) * (-2 / moments.count),
            matrix_DD=gradient_DD / moments.count,
            squared=0.0,
        )

    def interaction(self, moments: Moments, left_TD: Tensor, right_ND: Tensor) -> Tensor:
        # Means and deviations held fixed; exact only to first order in what they move.
        _, inverse_D, mean_D = _correlation(moments)
        left_TD = ((left_TD - mean_D) * inverse_D).to(left_TD.dtype)
        right_ND = ((right_ND - mean_D) * inverse_D).to(right_ND.dtype)
        products_TN = (left_TD @ right_ND.T).square_()
        products_TN -= left_TD.square() @ right_ND.square().T
        return products_TN.mul_(-2 / moments.count**2)

    def marginals_at(self, moments: Moments) -> RowMarginals:
        join, leave = _Moved(self, moments, 1), _Moved(self, moments, -1)

        def marginals(rows_nD: Tensor, weights_n: Tensor) -> Tensor:
            changes_n = torch.empty_like(weights_n)
            for moved, chosen_n in ((join, weights_n < 0.5), (leave, weights_n >= 0.5)):
                if bool(chosen_n.any()):
                    changes_n[chosen_n] = moved.change(rows_nD[chosen_n])
            return changes_n

        return marginals

    def values(self, embeddings_ND: Tensor, masks_GN: Tensor) -> Tensor:
        counts_G = masks_GN.sum(1)
        size = int(counts_G[0])
        if bool((counts_G != size).any()):
            return super().values(embeddings_ND, masks_GN)
        parts = [
            _values_of_equal_sizes(embeddings_ND[part.nonzero()[:, 1]].view(len(part), size, -1))
            for part in torch.split(masks_GN, MASKS_AT_ONCE)
        ]
        return torch.cat(parts)


class _Moved:
    """What one document's joining (sign 1) or leaving (sign -1) changes.

    Up to a factor, which correlations do not see, the covariance becomes ``cov + a y y'`` with
    ``y = x - mean`` and ``a = sign / (K + sign)`` (Welford 1962). With ``u`` the reciprocal variances, the sum of
    squared correlations is a quadratic form in u and one in u * y; both are expanded around the mask's own u, so that
    the large common part is never subtracted.
    """

    def __init__(self, metric: DiSF, moments: Moments, sign: int) -> None:
        assert moments.second_DD is not None, "needs_second was honoured"
        self.sign, self.count = sign, moments.count
        self.alone = moments.count + sign < 2
        self.value = metric.value(moments)
        count = max(moments.count, 1.0)
        self.mean_D, self.second_D = moments.first_D / count, moments.second_DD.diagonal() / count
        self.covariance_DD = moments.second_DD / count - self.mean_D[:, None] * self.mean_D
        self.variance_D = self.covariance_DD.diagonal()
        self.before_D = _reciprocal_deviations(self.variance_D, self.second_D).square()
        self.squared_DD = self.covariance_DD.square()
        self.slope_D = 2 * (self.squared_DD @ self.before_D)

    def change(self, rows_nD: Tensor) -> Tensor:
        """The marginals of rows on this side: value with the document, minus value without it."""
        if self.alone:
            value = torch.full((len(rows_nD),), -self.sign * self.value, dtype=torch.float64)
            return value.to(rows_nD.device)
        rate, kept = self.sign / (self.count + self.sign), self.count / (self.count + self.sign)
        centred_nD = rows_nD - self.mean_D.to(rows_nD)
        squared_nD = centred_nD.square()
        variance_nD = self.variance_D.to(rows_nD) + rate * squared_nD
        second_nD = kept * self.second_D.to(rows_nD) + rate * rows_nD.square()
        after_nD = _reciprocal_deviations(kept * variance_nD, second_nD).square_() * kept
        before_D = self.before_D.to(rows_nD)
        both_nD = (after_nD > 0) & (before_D > 0)
        moved_nD = torch.where(both_nD, -rate * squared_nD * before_D * after_nD, after_nD - before_D)
        scaled_nD = centred_nD * after_nD
        total_n = moved_nD @ self.slope_D.to(rows_nD)
        total_n += torch.linalg.vecdot(moved_nD @ self.squared_DD.to(rows_nD), moved_nD)
        total_n += 2 * rate * torch.linalg.vecdot(scaled_nD @ self.covariance_DD.to(rows_nD), scaled_nD)
        total_n += (rate * torch.linalg.vecdot(scaled_nD, centred_nD)).square_()
        varying_n = (after_nD > 0).sum(1) - (before_D > 0).sum()
        return self.sign * (varying_n - total_n.to(torch.float64))


def _correlation(moments: Moments) -> tuple[Tensor, Tensor, Tensor]:
    """Correlations with a zero diagonal, reciprocal deviations (zero where constant), means."""
    assert moments.second_DD is not None, "needs_second was honoured"
    count = max(moments.count, 1.0)  # nothing selected has no mean; all its moments are zero
    mean_D = moments.first_D / count
    second_DD = moments.second_DD / count
    covariance_DD = second_DD - mean_D[:, None] * mean_D
    inverse_D = _reciprocal_deviations(covariance_DD.diagonal(), second_DD.diagonal())
    correlation_DD = covariance_DD * (inverse_D[:, None] * inverse_D)
    return correlation_DD.fill_diagonal_(0), inverse_D, mean_D


def _reciprocal_deviations(variances: Tensor, second_moments: Tensor) -> Tensor:
    varies = variances > CONSTANT * second_moments
    return torch.where(varies, variances, 1.0).rsqrt() * varies


def _values_of_equal_sizes(rows_GKD: Tensor) -> Tensor:
    num_rows, dim = rows_GKD.shape[1:]
    second_moments_GD = rows_GKD.square().mean(1)
    centred_GKD = rows_GKD - rows_GKD.mean(1, keepdim=True)
    inverse_GD = _reciprocal_deviations(centred_GKD.square().mean(1), second_moments_GD)
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
