"""What swapping two documents does to a log-determinant, exactly. Knows no quality, budget or mask.

Shape suffixes: T candidates, O of them outside a mask, I inside it, D embedding dimensions.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import are_few
from datamask_pipeline.diversity.swap_models import Floats, Places, SwapModel

TINY = 1e-15
"""What a document leaves of a determinant at least, as a share."""


def determinant_swaps(
    rows_TD: Tensor, matrix_DD: Tensor, weight: float, scale: float, count: int, inside_I: Places | None
) -> DeterminantSwaps:
    """The model of ``scale * log det M``, where a document x adds ``weight x x'`` to M.

    Args:
        rows_TD: The candidates, float64 on the CPU.
        matrix_DD: M, float64; of no document it is the identity.
        weight: Of a document's product with itself.
        scale: Of the logarithm.
        count: Documents of a full mask.
        inside_I: The candidates that M is made of, where there is nothing else.
    """
    if inside_I is not None and are_few(count, rows_TD.shape[1]):
        return SwapsByProducts(rows_TD, inside_I, weight, scale)
    return SwapsByInverse(rows_TD, matrix_DD, weight, scale)


class DeterminantSwaps(SwapModel):
    """What follows from leverages, ``weight x' M^-1 x``, by the matrix determinant lemma.

    Source: Fedorov 1972, the exchange of design points.
    """

    follows = True

    def __init__(self, rows_TD: Tensor, weight: float, scale: float) -> None:
        self.rows_TD, self.weight, self.scale = rows_TD, weight, scale
        self.leverages_T: Floats = np.empty(0)

    @abstractmethod
    def _shared(self, outside_O: Places, inside_I: Places) -> Floats:
        """``x' M^-1 y`` of documents outside and inside: shape (O, I)."""

    def additions(self) -> Floats:
        sums_T: Floats = self.scale * np.log1p(self.leverages_T)
        return sums_T

    def removals(self, inside_I: Places) -> Floats:
        sums_I: Floats = self.scale * np.log1p(-self.leverages_T[inside_I].clip(max=1 - TINY))
        return sums_I

    def tangents(self) -> Floats:
        return self.scale * self.leverages_T

    def table(self, outside_O: Places, inside_I: Places) -> Floats:
        own_O, own_I = self.leverages_T[outside_O], self.leverages_T[inside_I]
        shared_OI = self.weight * self._shared(outside_O, inside_I)
        changes_OI: Floats = self.scale * np.log((1 + own_O)[:, None] * (1 - own_I) + shared_OI**2)
        return changes_OI


class SwapsByInverse(DeterminantSwaps):
    """By the inverse of M, brought up to date by rank-one changes.

    Args:
        rows_TD: See `determinant_swaps`.
        matrix_DD: See there.
        weight: See there.
        scale: See there.
    """

    def __init__(self, rows_TD: Tensor, matrix_DD: Tensor, weight: float, scale: float) -> None:
        super().__init__(rows_TD, weight, scale)
        self.inverse_DD = torch.cholesky_inverse(torch.linalg.cholesky(matrix_DD))
        own_T = torch.linalg.vecdot(rows_TD @ self.inverse_DD, rows_TD)
        self.leverages_T = own_T.mul_(weight).numpy().copy()

    def _shared(self, outside_O: Places, inside_I: Places) -> Floats:
        outside_OD, inside_ID = self.rows_TD[outside_O], self.rows_TD[inside_I]
        if len(inside_I) < len(outside_O):
            shared_OI = outside_OD @ (inside_ID @ self.inverse_DD).T
        else:
            shared_OI = (outside_OD @ self.inverse_DD) @ inside_ID.T
        numbers_OI: Floats = shared_OI.numpy()
        return numbers_OI

    def swap(self, into: int, out: int) -> None:
        self._move([(into, 1.0), (out, -1.0)])

    def add(self, into: int) -> None:
        self._move([(into, 1.0)])

    def _move(self, moves: list[tuple[int, float]]) -> None:
        directions, factors = [], []
        for document, sign in moves:
            row_D = self.rows_TD[document]
            along_D = self.inverse_DD @ row_D
            factor = sign * self.weight / (1 + sign * self.weight * float(along_D @ row_D))
            self.inverse_DD.addr_(along_D, along_D, alpha=-factor)
            directions.append(along_D)
            factors.append(factor * self.weight)
        along_mT = torch.stack(directions) @ self.rows_TD.T
        self.leverages_T -= (torch.tensor(factors, dtype=torch.float64) @ along_mT.square_()).numpy()


class SwapsByProducts(DeterminantSwaps):
    """By products of the mask's few documents with all candidates: no number a pair of dimensions.

    The matrix of those documents' products with each other is taken apart anew after each change: brought up to date, its
    inverse would lose digits from change to change where all documents point one way.

    Args:
        rows_TD: See `determinant_swaps`.
        inside_I: The candidates that M is made of.
        weight: See there.
        scale: See there.
    """

    def __init__(self, rows_TD: Tensor, inside_I: Places, weight: float, scale: float) -> None:
        super().__init__(rows_TD, weight, scale)
        self.inside_I = inside_I
        self.products_IT = rows_TD[inside_I] @ rows_TD.T
        own_T = torch.linalg.vecdot(rows_TD, rows_TD)
        along_IT = torch.linalg.solve_triangular(self._root(), self.products_IT, upper=False)
        own_T -= weight * along_IT.square().sum(0)
        self.leverages_T = own_T.mul_(weight).numpy().copy()

    def _root(self) -> Tensor:
        """The Cholesky factor of ``1 + weight X X'``, where X are the documents inside."""
        identity_II = torch.eye(len(self.inside_I), dtype=torch.float64)
        root_II: Tensor = torch.linalg.cholesky(
            identity_II + self.weight * self.products_IT[:, self.inside_I]
        )
        return root_II

    def _inverted(self, products_IT: Tensor) -> Tensor:
        """``X M^-1 y`` for candidates y with these products: by Woodbury that is ``(1 + weight X X')^-1 X y``."""
        return torch.cholesky_solve(products_IT, self._root())

    def _shared(self, outside_O: Places, inside_I: Places) -> Floats:
        order_I = np.argsort(self.inside_I)
        places_I = order_I[np.searchsorted(self.inside_I, inside_I, sorter=order_I)]
        numbers_OI: Floats = self._inverted(self.products_IT[:, outside_O])[places_I].T.numpy()
        return numbers_OI

    def swap(self, into: int, out: int) -> None:
        place = int(np.flatnonzero(self.inside_I == out)[0])
        unit_I = torch.eye(len(self.inside_I), dtype=torch.float64)[place]
        inverted_2I = self._inverted(torch.stack([self.products_IT[:, into], unit_I], dim=1)).T
        products_T = self.rows_TD @ self.rows_TD[into]
        for_them_2T = inverted_2I @ self.products_IT
        along_T, leaving_T = products_T - self.weight * for_them_2T[0], for_them_2T[1]
        factor = self._take_in(along_T, into)
        leaving_T = leaving_T - factor * float(along_T[out]) * along_T
        left = max(1 - self.weight * float(leaving_T[out]), TINY)
        self.leverages_T += (leaving_T.square() * (self.weight**2 / left)).numpy()
        self.inside_I = np.where(self.inside_I == out, into, self.inside_I)
        self.products_IT[place] = products_T

    def add(self, into: int) -> None:
        products_T = self.rows_TD @ self.rows_TD[into]
        inverted_I = self._inverted(self.products_IT[:, [into]])[:, 0]
        self._take_in(products_T - self.weight * (inverted_I @ self.products_IT), into)
        self.inside_I = np.append(self.inside_I, into)
        self.products_IT = torch.cat([self.products_IT, products_T[None]])

    def _take_in(self, along_T: Tensor, into: int) -> float:
        """Leverages beside one more document, and the factor of the change of ``M^-1``."""
        factor = self.weight / (1 + self.weight * float(along_T[into]))
        self.leverages_T -= (along_T.square() * (self.weight * factor)).numpy()
        return factor
