"""Metrics that are functions of a mask's first and second moments. Knows no learner, quality or budget.

Shape suffixes: N documents, D embedding dimensions, G masks, T candidates.

The statistics ``s = sum m_i x_i`` and ``C = sum m_i x_i x_i'`` add up over shards, so a block of any size is a
map-reduce of ``d + d^2`` numbers; one vector and one matrix then score every document.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamask_pipeline.diversity.base import DiversityMetric
from datamask_pipeline.diversity.swap_models import Places, QuadraticSwaps, SwapModel
from datamask_pipeline.products import QuadraticForm, second_moment

KEPT = 4096
"""Candidates up to which the interactions of every two are kept."""
FEW = 4
"""Where documents are so many times fewer than dimensions, their products with each other cost less than moments."""


def are_few(count: int, dim: int) -> bool:
    """Whether so many documents are told more cheaply by their products with each other."""
    return FEW * count <= dim


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Sums over a mask, relaxed or binary, in float64 on the CPU, wherever the rows live.

    Attributes:
        count: ``sum m_i``.
        first_D: ``sum m_i x_i``.
        second_DD: ``sum m_i x_i x_i'``; none where no metric needs it.
        squared: ``sum m_i |x_i|^2``, which is count but for the rounding of stored unit rows.
    """

    count: float
    first_D: Tensor
    second_DD: Tensor | None
    squared: float

    @classmethod
    def zero(cls, dim: int, needs_second: bool) -> Moments:
        """Those of no document."""
        return cls(
            count=0.0,
            first_D=torch.zeros(dim, dtype=torch.float64),
            second_DD=torch.zeros(dim, dim, dtype=torch.float64) if needs_second else None,
            squared=0.0,
        )

    def plus(self, other: Moments, scale: float = 1.0) -> Moments:
        """The moments of both masks together, the other's multiplied by `scale`."""
        second = None
        if self.second_DD is not None and other.second_DD is not None:
            second = self.second_DD + scale * other.second_DD
        return Moments(
            count=self.count + scale * other.count,
            first_D=self.first_D + scale * other.first_D,
            second_DD=second,
            squared=self.squared + scale * other.squared,
        )


@dataclass(frozen=True, kw_only=True)
class DrawnGroup:
    """Documents of which every random mask holds so many, any as likely as any other.

    Attributes:
        moments: Of all of them, or of a uniform sample that stands for them.
        fourth: Their sum of ``|x_i|^4``.
        count: Documents of a mask.
    """

    moments: Moments
    fourth: float
    count: float

    @property
    def share(self) -> float:
        """What a sum over them is multiplied by to be a mask's on average."""
        return self.count / self.moments.count

    @property
    def pairs(self) -> float:
        """The same of a sum over their pairs; 0 where there is none."""
        size = self.moments.count
        return self.count * (self.count - 1) / (size * (size - 1)) if size > 1 else 0.0


@dataclass(frozen=True, kw_only=True)
class LinearForm:
    """A score for every document: ``vector . x + x' matrix x + squared |x|^2``. float64."""

    vector_D: Tensor
    matrix_DD: Tensor | None
    squared: float

    def scaled(self, factor: float) -> LinearForm:
        """The same scores times a factor."""
        matrix = None if self.matrix_DD is None else self.matrix_DD * factor
        return LinearForm(vector_D=self.vector_D * factor, matrix_DD=matrix, squared=self.squared * factor)

    def total(self, moments: Moments) -> float:
        """The sum of the scores of documents with these moments."""
        total = float(self.vector_D @ moments.first_D) + self.squared * moments.squared
        if self.matrix_DD is not None and moments.second_DD is not None:
            total += float((self.matrix_DD * moments.second_DD).sum())
        return total

    def plus(self, other: LinearForm) -> LinearForm:
        """The sum of two scores."""
        matrices = [form.matrix_DD for form in (self, other) if form.matrix_DD is not None]
        return LinearForm(
            vector_D=self.vector_D + other.vector_D,
            matrix_DD=sum(matrices[1:], matrices[0]) if matrices else None,
            squared=self.squared + other.squared,
        )

    def largest(self, squared: float) -> float:
        """At least the largest score, of either sign, of documents of this ``|x|^2`` at most."""
        largest = float(torch.linalg.vector_norm(self.vector_D)) * squared**0.5 + abs(self.squared) * squared
        if self.matrix_DD is None:
            return largest
        # The 16th root of the sum of the 16th powers of the eigenvalues is no less than the largest of them.
        scale = float(torch.linalg.matrix_norm(self.matrix_DD))
        if scale == 0:
            return largest
        power_DD = self.matrix_DD / scale
        for _ in range(3):
            power_DD = power_DD @ power_DD
        return largest + scale * float(torch.linalg.matrix_norm(power_DD)) ** 0.125 * squared

    def scores(self, rows_nD: Tensor, squared_n: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """The score of every row, products in `dtype` or the rows' own: float64, shape (n,)."""
        scores_n = self.squared * squared_n.to(rows_nD.device)
        if bool(self.vector_D.any()):
            exact_nD = _exact(rows_nD)
            scores_n += (exact_nD @ self.vector_D.to(exact_nD)).to(torch.float64)
        if self.matrix_DD is None:
            return scores_n
        key = dtype or rows_nD.dtype, rows_nD.device
        if key not in self._prepared:
            self._prepared[key] = QuadraticForm(self.matrix_DD, *key)
        return scores_n.add_(self._prepared[key].of(rows_nD))

    @cached_property
    def _prepared(self) -> dict[tuple[torch.dtype, torch.device], QuadraticForm]:
        """The matrix as products need it: laid out once for all chunks of rows."""
        return {}


RowMarginals = Callable[[Tensor, Tensor], Tensor]
"""Marginals of some rows at a mask that is already known: (rows (n, D), their mask as float64 (n,)) -> float64 (n,)."""


class MomentMetric(DiversityMetric):
    """A metric of `Moments` alone.

    Members say whether they need second moments, whether they are concave in the relaxed mask at a fixed count
    (which gives a certificate), and their derivative as a `LinearForm`.
    """

    of_products = True
    needs_second: ClassVar[bool]
    concave: ClassVar[bool]
    quadratic: ClassVar[bool] = False
    """Whether `interaction` is the same at every mask of a count: greedy and the swap model are then exact."""
    spectral: ClassVar[bool] = False
    """Whether a value takes an eigendecomposition: a search along a segment then asks for few."""
    levelled_below: ClassVar[int] = 0
    """Dimensions below which a quadratic metric's extension levels the spectrum of fewer documents than dimensions: it is
    none of second order then, and takes an eigendecomposition."""
    exact_exchanges: ClassVar[bool] = False
    """Whether `exchange_model` is exact though the metric is not quadratic."""
    exact_marginals: ClassVar[bool] = False
    moving_count: ClassVar[bool] = False
    """Whether marginals let the number of documents move with the document: there is no value at another number."""

    @abstractmethod
    def value(self, moments: Moments) -> float:
        """The metric at these moments."""

    @abstractmethod
    def form(self, moments: Moments) -> LinearForm:
        """The derivative with respect to ``m_i`` at a fixed count, as a score of the document."""

    def value_of_products(self, products_KK: Tensor, dim: int) -> float | None:
        """The same value from the documents' products with each other, none where it takes their moments.

        Args:
            products_KK: float64, of fewer documents than dimensions.
            dim: D.
        """
        del products_KK, dim
        return None

    def relaxed_value(self, moments: Moments) -> float:
        """The metric's extension to relaxed masks, which the learner climbs: the value itself at binary masks.

        Concave if the metric is, and then every bit by which it lies below `value` tightens the certificate.
        """
        return self.value(moments)

    def relaxed_form(self, moments: Moments) -> LinearForm:
        """The derivative of `relaxed_value`, as `form` is that of `value`."""
        return self.form(moments)

    def mean_over_masks(self, groups: Sequence[DrawnGroup], held: Moments | None = None) -> float | None:
        """The mean over all masks that hold so many documents of each group.

        Args:
            groups: All documents, each in one group.
            held: Of documents that stand beside every mask: the mean is then that of the unions.

        Returns:
            The mean, exact where no sample stands for a group; none where it has no closed form.
        """
        del groups, held
        return None

    def gain_of_fewer(self, count: float, least: float) -> float | None:
        """Most that the value of fewer documents exceeds that of `count` documents of the same shares.

        Args:
            count: K.
            least: No fewer than these.

        Returns:
            A factor of ``variance * (1 / k - 1 / K)`` for every k from `least` to K, where the variance is the mean of
            ``|x_i|^2`` less the square of the mean's norm, and more documents than K of the same shares are worth no more;
            none where that is not known, as for a metric that does not say.
        """
        del count, least
        return None

    def growth(self, moments: Moments) -> float:
        """The derivative by the number of documents at fixed shares: 0 where only shares count.

        Args:
            moments: Of two documents at least.
        """
        del moments
        return 0.0

    def common_with(self, shown: Moments) -> LinearForm | None:
        """Twice the mean of what the metric averages over pairs, between a document and those shown; none without such.

        Args:
            shown: Moments of all of them.
        """
        del shown
        return None

    def interaction(self, moments: Moments, left_TD: Tensor, right_ND: Tensor) -> Tensor | None:
        """Second derivatives ``d^2 value / dm_i dm_j`` at a fixed count, shape (T, N), in the rows' dtype.

        None where they have no cheap form: swaps are then tried and measured.
        """
        del moments, left_TD, right_ND
        return None

    def swap_model(self, moments: Moments, rows_TD: Tensor) -> SwapModel:
        """What swapping some of these rows does at a mask: second order unless overridden, exact if quadratic."""
        scores_T = self.form(moments).scores(rows_TD, squared_norms(rows_TD)).cpu().numpy()
        if len(rows_TD) > KEPT:
            return QuadraticSwaps(
                scores_T,
                lambda left, right: _numbers(self.interaction(moments, rows_TD[left], rows_TD[right])),
            )
        bends_TT = self.interaction(moments, rows_TD, rows_TD)
        if bends_TT is None:
            return QuadraticSwaps(scores_T, None)
        hessian_TT = _numbers(bends_TT)
        return QuadraticSwaps(scores_T, lambda left, right: hessian_TT[np.ix_(left, right)])

    def exchange_model(self, moments: Moments, rows_TD: Tensor, inside_I: Places | None = None) -> SwapModel:
        """The same, exact where there are `exact_exchanges`, at any number of documents from none on; it may take longer.

        Args:
            moments: Of the mask.
            rows_TD: The candidates.
            inside_I: Those that the mask is made of, where there are no others: a model may be cheaper by them.
        """
        del inside_I
        return self.swap_model(moments, rows_TD)

    def swap_work(self, num_rows: int, count: float, dim: int) -> float:
        """Numbers that `exchange_model` reads of so many candidates at each move, at a mask of `count` documents."""
        del count
        return 4.0 * dim * num_rows

    def self_products(self, moments: Moments, squared_N: Tensor) -> Tensor:
        """What a document's product with itself is worth, by which marginals of a quadratic metric exceed its derivative
        where the document is in, and lie below it where it is out.

        Args:
            squared_N: ``|x_i|^2``.
        """
        raise NotImplementedError(f"{self.name} is not quadratic")

    def marginals_at(self, moments: Moments) -> RowMarginals:
        """Marginals (see `DiversityMetric.marginals`) of any rows at a mask with these moments.

        First order unless overridden. For a quadratic metric the rows' mask may be relaxed: the result is then the
        derivative of the metric's expectation under independent inclusion with these probabilities.

        Args:
            moments: With the count that the metric is to divide by.
        """
        form = self.form(moments)

        def marginals(rows_nD: Tensor, weights_n: Tensor) -> Tensor:
            squared_n = squared_norms(rows_nD)
            scores_n = form.scores(rows_nD, squared_n)
            return (
                scores_n + (2 * weights_n - 1) * self.self_products(moments, squared_n)
                if self.quadratic
                else scores_n
            )

        return marginals

    def values(self, embeddings_ND: Tensor, masks_GN: Tensor) -> Tensor:
        return torch.tensor(
            [self.value(moments_of(embeddings_ND, mask_N, self.needs_second)) for mask_N in masks_GN],
            dtype=torch.float64,
        )

    def values_beside(self, held: Moments, embeddings_ND: Tensor, masks_GN: Tensor) -> Tensor:
        """`values` of masks together with what is held, of which moments are known: float64 of shape (G,)."""
        unions = (moments_of(embeddings_ND, mask_N, self.needs_second).plus(held) for mask_N in masks_GN)
        return torch.tensor([self.value(moments) for moments in unions], dtype=torch.float64)

    def marginals(self, embeddings_ND: Tensor, mask_N: Tensor) -> Tensor:
        moments = moments_of(embeddings_ND, mask_N, self.needs_second)
        return self.marginals_at(moments)(embeddings_ND, mask_N.to(torch.float64))


def moments_of(embeddings_ND: Tensor, weights_N: Tensor, needs_second: bool) -> Moments:
    """The moments of a mask, relaxed or binary, over rows in memory, products in the rows' dtype; on the CPU as all are."""
    weights_N = weights_N.to(embeddings_ND.device)
    chosen = torch.nonzero(weights_N).squeeze(1)
    rows_TD, weights_T = embeddings_ND[chosen], weights_N[chosen].to(torch.float64)
    weighted_TD = rows_TD if weights_N.dtype == torch.bool else rows_TD * weights_T.to(rows_TD.dtype)[:, None]
    second_DD = second_moment(rows_TD, weighted_TD).to(torch.float64).cpu() if needs_second else None
    return Moments(
        count=float(weights_T.sum()),
        first_D=weighted_TD.sum(0, dtype=torch.float64).cpu(),
        second_DD=second_DD,
        squared=float((squared_norms(rows_TD) * weights_T).sum()),
    )


def squared_norms(embeddings_ND: Tensor) -> Tensor:
    """``|x_i|^2`` in float64, shape (N,)."""
    rows_ND = _exact(embeddings_ND)
    squared_N: Tensor = torch.linalg.vecdot(rows_ND, rows_ND)
    return squared_N.to(torch.float64)


def _exact(rows_ND: Tensor) -> Tensor:
    return rows_ND if rows_ND.dtype == torch.float64 else rows_ND.float()


def _numbers(values: Tensor | None) -> NDArray[np.float64]:
    assert values is not None, "asked for where there are interactions"
    return values.to(torch.float64).cpu().numpy()
