"""What swapping two documents does to a log-determinant, exactly. Knows no quality, budget or mask.

Shape suffixes: T candidates, O of them outside a mask, I inside it, D embedding dimensions.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from datamask_pipeline.diversity.swap_models import Floats, Places, SwapModel


class DeterminantSwaps(SwapModel):
    """The model of ``scale * log det M``, where a document x adds ``weight x x'`` to M, by the matrix determinant lemma.

    Source: Fedorov 1972, the exchange of design points.

    Args:
        rows_TD: The candidates, float64 on the CPU.
        inverse_DD: The inverse of M, float64; brought up to date in place.
        weight: Of a document's product with itself.
        scale: Of the logarithm.
    """

    follows = True

    def __init__(self, rows_TD: Tensor, inverse_DD: Tensor, weight: float, scale: float) -> None:
        self.rows_TD, self.inverse_DD, self.weight, self.scale = rows_TD, inverse_DD, weight, scale
        self.leverages_T: Floats = (
            torch.linalg.vecdot(rows_TD @ inverse_DD, rows_TD).mul_(weight).numpy().copy()
        )

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
            shared = outside_OD @ (self.inverse_DD @ inside_ID.T)
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
        along_Tm = self.rows_TD @ torch.stack(directions, dim=1)
        self.leverages_T -= (along_Tm.square_() @ torch.tensor(factors, dtype=torch.float64)).numpy()
