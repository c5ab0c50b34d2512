"""What swapping two documents does to a log-determinant, exactly. Knows no quality, budget or mask.

Shape suffixes: T candidates, O of them outside a mask, I inside it, D embedding dimensions.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import are_few
from datamask_pipeline.diversity.swap_models import Floats, Places, SwapModel


class DeterminantSwaps(SwapModel):
    """The model of ``scale * log det M``, where a document x adds ``weight x x'`` to M, by the matrix determinant lemma.

    Source: Fedorov 1972, the exchange of design points.

    Args:
        rows_TD: The candidates, float64 on the CPU.
        matrix_DD: M, float64; of no document it is the identity.
        weight: Of a document's product with itself.
        scale: Of the logarithm.
        inside_I: The candidates that M is made of, where there is nothing else.
    """

    follows = True

    def __init__(
        self,
        rows_TD: Tensor,
        matrix_DD: Tensor,
        weight: float,
        scale: float,
        inside_I: Places | None = None,
    ) -> None:
        self.rows_TD, self.weight, self.scale = rows_TD, weight, scale
        if inside_I is not None and are_few(len(inside_I), rows_TD.shape[1]):
            # Woodbury: what M adds to the identity is of as many directions as documents.
            along_ID = _beside_identity(rows_TD[inside_I], weight)
            self.inverse_DD = torch.eye(rows_TD.shape[1], dtype=torch.float64)
            self.inverse_DD.addmm_(along_ID.T, along_ID, alpha=-1)
            own_T = torch.linalg.vecdot(rows_TD, rows_TD) - (rows_TD @ along_ID.T).square_().sum(1)
        else:
            self.inverse_DD = torch.cholesky_inverse(torch.linalg.cholesky(matrix_DD))
            own_T = torch.linalg.vecdot(rows_TD @ self.inverse_DD, rows_TD)
        self.leverages_T: Floats = own_T.mul_(weight).numpy().copy()

    def additions(self) -> Floats:
        sums_T: Floats = self.scale * np.log1p(self.leverages_T)
        return sums_T

    def removals(self, inside_I: Places) -> Floats:
        sums_I: Floats = self.scale * np.log1p(-self.leverages_T[inside_I].clip(max=1 - 1e-15))
        return sums_I

    def tangents(self) -> Floats:
        return self.scale * self.leverages_T

    def table(self, outside_O: Places, inside_I: Places) -> Floats:
        outside_OD, inside_ID = self.rows_TD[outside_O], self.rows_TD[inside_I]
        if len(inside_I) < len(outside_O):
            shared = outside_OD @ (inside_ID @ self.inverse_DD).T
        else:
            shared = (outside_OD @ self.inverse_DD) @ inside_ID.T
        own_O, own_I = self.leverages_T[outside_O], self.leverages_T[inside_I]
        factors_OI = (1 + own_O)[:, None] * (1 - own_I) + (self.weight * shared.numpy()) ** 2
        changes_OI: Floats = self.scale * np.log(factors_OI)
        return changes_OI

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


def _beside_identity(inside_ID: Tensor, weight: float) -> Tensor:
    """Rows whose products with themselves are the identity less the inverse of it and weighted documents."""
    identity_II = torch.eye(len(inside_ID), dtype=torch.float64)
    root_II = torch.linalg.cholesky(identity_II + weight * (inside_ID @ inside_ID.T))
    rows_ID: Tensor = torch.linalg.solve_triangular(root_II, inside_ID * weight**0.5, upper=False)
    return rows_ID
