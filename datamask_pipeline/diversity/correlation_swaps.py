"""What swapping two documents does to squared correlations, exactly. Knows no quality, budget or mask.

Shape suffixes: T candidates, O of them outside a mask, I inside it, D embedding dimensions.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from datamask_pipeline.diversity.correlation import Moved
from datamask_pipeline.diversity.moments import Moments, moments_of
from datamask_pipeline.diversity.swap_models import Floats, Places, SwapModel

SINGLE_FROM = 128
"""Dimensions above which forms are float32 products: they then take most of the time."""


class CorrelationSwaps(SwapModel):
    """The model of minus the squared correlations: a document leaves, and all others are tried in its place.

    Cost: two forms a pair, ``O(d^2)``, and a few passes over a d x d matrix for each document that leaves.

    Args:
        moments: Of the mask.
        rows_TD: The candidates.
    """

    follows = True
    promising = (256, 4)

    def __init__(self, moments: Moments, rows_TD: Tensor) -> None:
        self.moments = moments
        self.rows_TD = rows_TD.float() if rows_TD.shape[1] > SINGLE_FROM else rows_TD
        self.pairs_at_once = self.affordable = max(2**12, 2**33 // rows_TD.shape[1] ** 2)

    def additions(self) -> Floats:
        return _numbers(Moved(self.moments, 1).change(self.rows_TD))

    def removals(self) -> Floats:
        return -_numbers(Moved(self.moments, -1).change(self.rows_TD))

    def tangents(self) -> None:
        return None

    def table(self, outside_O: Places, inside_I: Places) -> Floats:
        rows_OD, before = self.rows_TD[outside_O], Moved(self.moments, 1).value
        columns = []
        for document in inside_I:
            without = Moved(self._moved(int(document), -1), 1)
            columns.append(_numbers(without.change(rows_OD)) + (without.value - before))
        return np.stack(columns, axis=1)

    def swap(self, into: int, out: int) -> None:
        self.moments = self._moved(into, 1).plus(self._one(out), -1)

    def add(self, into: int) -> None:
        self.moments = self._moved(into, 1)

    def _moved(self, document: int, sign: int) -> Moments:
        return self.moments.plus(self._one(document), sign)

    def _one(self, document: int) -> Moments:
        return moments_of(self.rows_TD[[document]].double().cpu(), torch.ones(1, dtype=torch.bool), True)


def _numbers(values_T: Tensor) -> Floats:
    numbers_T: Floats = values_T.to(torch.float64).cpu().numpy()
    return numbers_T
