"""What swapping two documents does to a metric, among a few candidates. Knows no quality, budget or mask.

Shape suffixes: T candidates, O of them outside a mask, I inside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray


class SwapModel(ABC):
    """Changes of a metric at a fixed number of documents, followed through one swap after the other."""

    follows: bool
    """Whether the model knows what a swap changes for the next ones; where it does not, each candidate moves once."""

    @abstractmethod
    def additions(self) -> NDArray[np.float64]:
        """What each candidate would add, were it taken in with nothing given up: shape (T,)."""

    @abstractmethod
    def table(self, outside_O: NDArray[np.int64], inside_I: NDArray[np.int64]) -> NDArray[np.float64]:
        """The change on taking in one candidate and giving up another: shape (O, I)."""

    @abstractmethod
    def swap(self, into: int, out: int) -> None:
        """Takes note that one candidate came in for another."""


class QuadraticSwaps(SwapModel):
    """The second-order model.

    Args:
        scores_T: First derivatives, float64.
        hessian_TT: Second derivatives, float64; where a metric has none, the model is linear and follows nothing.
    """

    def __init__(self, scores_T: NDArray[np.float64], hessian_TT: NDArray[np.float64] | None) -> None:
        self.scores_T, self.hessian_TT = scores_T, hessian_TT
        self.half_T = np.zeros_like(scores_T) if hessian_TT is None else hessian_TT.diagonal() / 2
        self.follows = hessian_TT is not None

    def additions(self) -> NDArray[np.float64]:
        return self.scores_T + self.half_T

    def table(self, outside_O: NDArray[np.int64], inside_I: NDArray[np.int64]) -> NDArray[np.float64]:
        gains_O = (self.scores_T + self.half_T)[outside_O]
        costs_I = (self.scores_T - self.half_T)[inside_I]
        changes_OI: NDArray[np.float64] = gains_O[:, None] - costs_I
        if self.hessian_TT is not None:
            # Two documents alike attract: taking one in while the other stays costs their interaction.
            changes_OI -= self.hessian_TT[np.ix_(outside_O, inside_I)]
        return changes_OI

    def swap(self, into: int, out: int) -> None:
        if self.hessian_TT is not None:
            self.scores_T = self.scores_T + self.hessian_TT[into] - self.hessian_TT[out]


class DeterminantSwaps(SwapModel):
    """The model of ``scale * log det M``, where a document x adds ``w x x'`` to M: exact, by the matrix determinant lemma.

    Source: Fedorov 1972, the exchange of design points.

    Args:
        leverages_TT: ``w x_i' M^-1 x_j`` of every two candidates, float64; brought up to date in place.
        scale: Of the logarithm.
    """

    follows = True

    def __init__(self, leverages_TT: NDArray[np.float64], scale: float) -> None:
        self.leverages_TT, self.scale = leverages_TT, scale

    def additions(self) -> NDArray[np.float64]:
        sums_T: NDArray[np.float64] = self.scale * np.log1p(self.leverages_TT.diagonal())
        return sums_T

    def table(self, outside_O: NDArray[np.int64], inside_I: NDArray[np.int64]) -> NDArray[np.float64]:
        own_T = self.leverages_TT.diagonal()
        shared_OI = self.leverages_TT[np.ix_(outside_O, inside_I)]
        factors_OI = (1 + own_T[outside_O])[:, None] * (1 - own_T[inside_I]) + shared_OI**2
        changes_OI: NDArray[np.float64] = self.scale * np.log(factors_OI)
        return changes_OI

    def swap(self, into: int, out: int) -> None:
        for document, sign in ((into, 1.0), (out, -1.0)):
            column_T = self.leverages_TT[:, document].copy()
            self.leverages_TT -= np.outer(column_T, column_T * (sign / (1 + sign * column_T[document])))


class SummedSwaps(SwapModel):
    """The model of a weighted sum of metrics and a linear part.

    Args:
        linear_T: Linear part of each candidate, float64.
        parts: Weight and swap model of each metric.
    """

    def __init__(self, linear_T: NDArray[np.float64], parts: list[tuple[float, SwapModel]]) -> None:
        self.linear_T, self.parts = linear_T, parts
        self.follows = all(part.follows for _, part in parts)

    def additions(self) -> NDArray[np.float64]:
        return self.linear_T + sum(weight * part.additions() for weight, part in self.parts)

    def table(self, outside_O: NDArray[np.int64], inside_I: NDArray[np.int64]) -> NDArray[np.float64]:
        linear_OI = self.linear_T[outside_O][:, None] - self.linear_T[inside_I]
        return linear_OI + sum(weight * part.table(outside_O, inside_I) for weight, part in self.parts)

    def swap(self, into: int, out: int) -> None:
        for _, part in self.parts:
            part.swap(into, out)
