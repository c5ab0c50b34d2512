"""Correlations of a mask's features, and what one document more or less does to them. Knows no quality, budget or learner.

Shape suffixes: n rows, D embedding dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import Moments

CONSTANT = 1e-6
"""A dimension whose variance is below this share of its second moment is constant: it correlates with nothing."""
NOTHING = 1e-12
"""So is one of a smaller variance, as unit vectors go: sums that documents were taken from leave so much of nothing."""
PASSES = 40
"""What a document costs `Joined` besides the products, in passes over its dimensions."""
ROUNDING = 16 * torch.finfo(torch.float32).eps
"""Below this share of what it was taken from a difference is rounding: moments are sums of float32 products."""


def squared_correlations(moments: Moments) -> float:
    """The sum over pairs of different dimensions."""
    return float(correlation(moments)[0].square().sum())


class Moved:
    """What one document's joining (sign 1) or leaving (sign -1) changes.

    Up to a factor, which correlations do not see, the covariance becomes ``cov + a y y'`` with
    ``y = x - mean`` and ``a = sign / (K + sign)`` (Welford 1962). With ``u`` the reciprocal variances, the sum of
    squared correlations is a quadratic form in u and one in u * y; both are expanded around the mask's own u, so that
    the large common part is never subtracted.
    """

    def __init__(self, moments: Moments, sign: int) -> None:
        assert moments.second_DD is not None, "needs_second was honoured"
        self.sign, self.count = sign, moments.count
        self.alone = moments.count + sign < 2
        count = max(moments.count, 1.0)
        self.mean_D, self.second_D = moments.first_D / count, moments.second_DD.diagonal() / count
        self.covariance_DD = torch.addr(moments.second_DD, self.mean_D, self.mean_D, beta=1 / count, alpha=-1)
        self.variance_D = self.covariance_DD.diagonal()
        self.before_D = reciprocal_deviations(self.variance_D, self.second_D).square()
        self.squared_DD = self.covariance_DD.square()
        self.slope_D = 2 * (self.squared_DD @ self.before_D)
        # Minus the squares of all correlations, without those of each dimension with itself.
        self.value = float((self.before_D > 0).sum() - self.slope_D @ self.before_D / 2)

    def change(self, rows_nD: Tensor) -> Tensor:
        """The marginals of rows on this side: minus the squared correlations with the document, plus those without it."""
        if self.alone:
            value = torch.full((len(rows_nD),), -self.sign * self.value, dtype=torch.float64)
            return value.to(rows_nD.device)
        rate, kept = self.sign / (self.count + self.sign), self.count / (self.count + self.sign)
        centred_nD = rows_nD - self.mean_D.to(rows_nD)
        squared_nD = centred_nD.square()
        variance_nD = self.variance_D.to(rows_nD) + rate * squared_nD
        second_nD = kept * self.second_D.to(rows_nD) + rate * rows_nD.square()
        if self.sign < 0:  # what is left of a dimension that the document alone had is rounding
            second_nD = second_nD.maximum(self.second_D.to(rows_nD) * (ROUNDING / CONSTANT))
        after_nD = reciprocal_deviations(kept * variance_nD, second_nD).square_() * kept
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


class Joined:
    """What one document's joining a mask of few documents changes, by their products with each other; see `Moved`.

    The correlations of the dimensions and the products of the standardised documents have the same sum of squares,
    ``|Z'Z| = |ZZ'|``. With ``u`` the reciprocal sums of squares about the mean, a product is linear in u; all are expanded
    around the mask's own u.

    Shape suffixes: K documents of the mask, P pairs of them.

    Cost: ``O(K^2 d)`` a document.

    Args:
        rows_KD: Two of them at least, float64.
    """

    def __init__(self, rows_KD: Tensor) -> None:
        self.count, mean_D = len(rows_KD), rows_KD.mean(0)
        centred_KD = rows_KD - mean_D
        self.mean_D, self.centred_KD = mean_D, centred_KD
        self.sums_D, self.seconds_D = centred_KD.square().sum(0), rows_KD.square().sum(0)
        self.before_D = _reciprocals(self.sums_D, self.seconds_D, self.count)
        self.left_P, self.right_P = torch.triu_indices(self.count, self.count)
        self.pairs_DP = (centred_KD[self.left_P] * centred_KD[self.right_P]).T
        self.times_P = torch.where(self.left_P == self.right_P, 1.0, 2.0).double()
        self.products_P = self.before_D @ self.pairs_DP
        self.value = float((self.before_D > 0).sum() - self.times_P @ self.products_P.square())

    def change(self, rows_nD: Tensor) -> Tensor:
        """The marginals of rows: minus the squared correlations with the document, plus those without it."""
        count = self.count + 1
        centred_nD = rows_nD - self.mean_D.to(rows_nD)
        squared_nD = centred_nD.square().mul_(self.count / count)
        after_nD = _reciprocals(
            self.sums_D.to(rows_nD) + squared_nD, self.seconds_D.to(rows_nD) + rows_nD.square(), count
        )
        before_D = self.before_D.to(rows_nD)
        both_nD = (after_nD > 0) & (before_D > 0)
        moved_nD = torch.where(both_nD, -squared_nD * before_D * after_nD, after_nD - before_D)
        # The mean moves by as much, and so does every document about it.
        shift_nD = centred_nD / count
        weighted_nD = after_nD * shift_nD
        along_nK = weighted_nD @ self.centred_KD.to(rows_nD).T
        own_n = torch.linalg.vecdot(weighted_nD, shift_nD)
        moved_nP = moved_nD @ self.pairs_DP.to(rows_nD)
        moved_nP += own_n[:, None] - along_nK[:, self.left_P] - along_nK[:, self.right_P]
        total_n = (moved_nP * (moved_nP + 2 * self.products_P.to(rows_nD))) @ self.times_P.to(rows_nD)
        total_n += 2 * (along_nK - own_n[:, None]).mul_(self.count).square_().sum(1)
        total_n += (self.count**2 * own_n).square_()
        varying_n = (after_nD > 0).sum(1) - (before_D > 0).sum()
        return varying_n - total_n.to(torch.float64)


def numbers_joined(count: float, dim: int) -> float:
    """Numbers that `Joined` reads for each document; `Moved` reads ``dim^2``."""
    return dim * (count**2 / 2 + PASSES)


def correlation(moments: Moments) -> tuple[Tensor, Tensor, Tensor]:
    """Correlations with a zero diagonal, reciprocal deviations (zero where constant), means."""
    assert moments.second_DD is not None, "needs_second was honoured"
    count = max(moments.count, 1.0)  # nothing selected has no mean; all its moments are zero
    mean_D = moments.first_D / count
    second_DD = moments.second_DD / count
    covariance_DD = second_DD - mean_D[:, None] * mean_D
    inverse_D = reciprocal_deviations(covariance_DD.diagonal(), second_DD.diagonal())
    correlation_DD = covariance_DD * (inverse_D[:, None] * inverse_D)
    return correlation_DD.fill_diagonal_(0), inverse_D, mean_D


def _reciprocals(sums: Tensor, seconds: Tensor, count: int) -> Tensor:
    """Of sums of squares about the mean; zero where the dimension is constant."""
    return reciprocal_deviations(sums / count, seconds / count).square_().div_(count)


def reciprocal_deviations(variances: Tensor, second_moments: Tensor) -> Tensor:
    varies = (variances > CONSTANT * second_moments) & (variances > NOTHING)
    return torch.where(varies, variances, 1.0).rsqrt() * varies
