"""Correlations of a mask's features, and what one document more or less does to them. Knows no quality, budget or learner.

Shape suffixes: n rows, D embedding dimensions; `...` for several masks side by side, or for none.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamask_pipeline.diversity.moments import Moments

CONSTANT = 1e-6
"""A dimension whose variance is below this share of its second moment is constant: it correlates with nothing."""
NOTHING = 1e-12
"""So is one of a smaller variance, as unit vectors go: sums that documents were taken from leave so much of nothing."""
NUMBERS_AT_ONCE, FEWEST_ROWS = 2**16, 256
"""Numbers of rows that `Settled` takes at once, what fits into a core's cache; and the fewest rows."""
PASSES = 40
"""What a document costs `Joined` besides the products, in passes over its dimensions."""
LOOKING = 1.5e6
"""As many numbers as `Joined` reads in the time that a look at any number of documents takes besides."""
FASTER = 12
"""How many numbers of its float32 products `Settled` reads while `Joined` reads one."""
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


@dataclass(frozen=True)
class Spread:
    """How a mask's documents are spread in each dimension, or those of several masks, float64.

    Attributes:
        count: Of documents.
        mean_D: Means, (..., D).
        variance_D: Variances, (..., D).
        second_D: Means of squares, (..., D).
    """

    count: float
    mean_D: Tensor
    variance_D: Tensor
    second_D: Tensor

    @cached_property
    def inverse_D(self) -> Tensor:
        """Reciprocal deviations, 0 where constant."""
        return reciprocal_deviations(self.variance_D, self.second_D)

    @classmethod
    def of(cls, moments: Moments) -> Spread:
        """That of a mask."""
        assert moments.second_DD is not None, "needs_second was honoured"
        mean_D, second_D = moments.first_D / moments.count, moments.second_DD.diagonal() / moments.count
        return cls(moments.count, mean_D, second_D - mean_D.square(), second_D)

    def at(self, places: NDArray[np.int64]) -> Spread:
        """That of some of several masks."""
        return Spread(self.count, self.mean_D[places], self.variance_D[places], self.second_D[places])

    def without(self, row_D: Tensor) -> Spread:
        """That of the mask without a document, or with each of several of them left out, (..., D)."""
        count, away_D = self.count - 1, row_D - self.mean_D
        return Spread(
            count=count,
            mean_D=self.mean_D - away_D / count,
            variance_D=(self.variance_D - away_D.square() / count) * (self.count / count),
            second_D=(self.second_D * self.count - row_D.square()) / count,
        )

    def settled(self, least_D: Tensor, most_D: Tensor) -> Tensor:
        """Whether the dimensions that vary are the same with any one document more whose numbers are within these.

        Returns:
            Booleans, (...). Where fewer than two documents are spread, nothing is.
        """
        square_D = torch.maximum(least_D.square(), most_D.square())
        away_D = torch.maximum((least_D - self.mean_D).square(), (most_D - self.mean_D).square())
        with_D = self.variance_D + away_D / (self.count + 1)
        vary_D = self.variance_D > (CONSTANT * (self.second_D + square_D / self.count)).clamp(min=2 * NOTHING)
        constant_D = with_D <= (CONSTANT * self.second_D).clamp(min=NOTHING)
        return torch.where(self.inverse_D > 0, vary_D, constant_D).all(-1) & (self.count >= 2)

    def standardised(self, rows_KD: Tensor) -> Tensor:
        """The documents of a mask, or of several, (..., K, D), as Z with the correlations ``Z'Z``."""
        scale_D = self.inverse_D / math.sqrt(self.count)
        return (rows_KD - self.mean_D[..., None, :]).mul_(scale_D[..., None, :])


class Settled:
    """What one document's joining changes where the same dimensions vary with any: `Moved` in fewer passes.

    In standardised dimensions, with u a row about the mean, ``w = 1 / (K + 1)`` and ``m = w u^2 / (1 + w u^2)``, squared
    correlations Q change by ``m'Qm - 2 m'Q1 + 2 w v'Cv + (1'm)^2``, ``v = u - u m``. Of few documents Z, standardised and of
    lengths that make ``C = Z'Z``, the forms are sums of squares over documents, and over pairs of them.

    Args:
        spread: Of the mask, or of several; it is settled.
        squared: The form of Q.
        correlated: The form of C.
    """

    def __init__(self, spread: Spread, squared: _Form, correlated: _Form) -> None:
        self.spread, self.squared, self.correlated = spread, squared, correlated
        self.slope_D = squared.summed().mul_(-2)

    @classmethod
    def of_many(cls, spread: Spread, correlation_DD: Tensor, rows_KD: Tensor | None = None) -> Settled:
        """That of masks by their correlations.

        Args:
            spread: Theirs.
            correlation_DD: Those with itself included, in the precision of the rows that it is asked about, (..., D, D).
            rows_KD: The documents, float64, where they are fewer than dimensions, (..., K, D).
        """
        correlated: _Form = _ByMatrix(correlation_DD)
        if rows_KD is not None:
            correlated = _ByFactor(spread.standardised(rows_KD).to(correlation_DD))
        return cls(spread, _ByMatrix(correlation_DD.square()), correlated)

    @classmethod
    def of_few(cls, spread: Spread, rows_KD: Tensor, dtype: torch.dtype) -> Settled:
        """That of masks of so few documents that pairs of them are fewer than dimensions.

        Args:
            spread: Theirs.
            rows_KD: The documents, float64, (..., K, D).
            dtype: Of the rows that it is asked about.
        """
        scaled_KD = spread.standardised(rows_KD).to(dtype)
        left_P, right_P = torch.triu_indices(scaled_KD.shape[-2], scaled_KD.shape[-2])
        pairs_PD = scaled_KD[..., left_P, :] * scaled_KD[..., right_P, :]
        pairs_PD.mul_((1 + (left_P != right_P).to(pairs_PD)).sqrt_()[:, None])
        return cls(spread, _ByFactor(pairs_PD), _ByFactor(scaled_KD))

    def change(self, rows_nD: Tensor) -> Tensor:
        """The marginals of rows, as `Moved` has them.

        Args:
            rows_nD: For every mask the same, (n, D), or for each its own, (..., n, D).

        Returns:
            (..., n).
        """
        inverse_D, weight = self.spread.inverse_D, 1 / (self.spread.count + 1)
        mean_D, inverse_D = (self.spread.mean_D * inverse_D).to(rows_nD), inverse_D.to(rows_nD)
        mean_D, inverse_D, slope_D = mean_D[..., None, :], inverse_D[..., None, :], self.slope_D[..., None, :]
        totals = []
        for part_nD in torch.split(rows_nD, max(FEWEST_ROWS, NUMBERS_AT_ONCE // mean_D.numel()), dim=-2):
            scaled_nD = torch.addcmul(-mean_D, part_nD, inverse_D)
            share_nD = scaled_nD.square().mul_(weight)
            share_nD /= share_nD + 1
            total_n = self.squared.at(share_nD).add_(torch.linalg.vecdot(share_nD, slope_D))
            total_n += share_nD.sum(-1).square_()
            scaled_nD.addcmul_(scaled_nD, share_nD, value=-1)
            total_n.add_(self.correlated.at(scaled_nD), alpha=2 * weight)
            totals.append(total_n)
        return -torch.cat(totals, dim=-1).to(torch.float64)


class _Form(ABC):
    """A quadratic form ``v'Av``, or one for each of several masks."""

    @abstractmethod
    def at(self, rows_nD: Tensor) -> Tensor:
        """Its values, (..., n)."""

    @abstractmethod
    def summed(self) -> Tensor:
        """``A1``, (..., D)."""


@dataclass(frozen=True)
class _ByMatrix(_Form):
    """A is symmetric, (..., D, D)."""

    matrix_DD: Tensor

    def at(self, rows_nD: Tensor) -> Tensor:
        return torch.linalg.vecdot(rows_nD @ self.matrix_DD, rows_nD)

    def summed(self) -> Tensor:
        return self.matrix_DD.sum(-2)


@dataclass(frozen=True)
class _ByFactor(_Form):
    """``A = F'F``, F of fewer rows than dimensions, (..., k, D)."""

    factor_kD: Tensor

    def at(self, rows_nD: Tensor) -> Tensor:
        return (rows_nD @ self.factor_kD.mT).square_().sum(-1)

    def summed(self) -> Tensor:
        return (self.factor_kD.sum(-1)[..., None, :] @ self.factor_kD)[..., 0, :]


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
    """Numbers that `Joined` reads for each document."""
    return dim * (count**2 / 2 + PASSES)


def numbers_moved(count: float, dim: int) -> float:
    """As many as `Joined` reads in the time that `Settled`, or else `Moved`, takes for each document."""
    squared = min(count * (count + 1) / 2, dim)
    correlated = min(count, dim)
    return dim * (PASSES / 2 + (squared + correlated) / 2 / FASTER)


def correlation_of(moments: Moments, spread: Spread) -> Tensor:
    """Correlations of a mask, those with itself included, float64, (D, D)."""
    assert moments.second_DD is not None, "needs_second was honoured"
    mean_D, inverse_D = spread.mean_D, spread.inverse_D
    covariance_DD = torch.addr(moments.second_DD, mean_D, mean_D, beta=1 / moments.count, alpha=-1)
    return covariance_DD.mul_(inverse_D).mul_(inverse_D[:, None])


def correlations_without(correlation_DD: Tensor, before: Spread, row_D: Tensor, after: Spread) -> Tensor:
    """Correlations, those with itself included, of a mask without a document, or with each of several left out.

    Args:
        correlation_DD: The mask's.
        before: Its spread.
        row_D: The document's, (..., D).
        after: The spread without it.

    Returns:
        (..., D, D), in the precision of `correlation_DD`.
    """
    inverse_D = after.inverse_D * math.sqrt(before.count / after.count)
    factor_D = torch.nan_to_num(inverse_D / before.inverse_D).to(correlation_DD)
    away_D = (inverse_D * (row_D - before.mean_D) / math.sqrt(after.count)).to(factor_D)
    without_DD = (correlation_DD * factor_D[..., None, :]).mul_(factor_D[..., None])
    return without_DD.addcmul_(away_D[..., None], away_D[..., None, :], value=-1)


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
