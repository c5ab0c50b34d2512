"""What swapping two documents does to squared correlations, exactly. Knows no quality, budget or mask.

Shape suffixes: T candidates, O of them outside a mask, I inside it, D embedding dimensions.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from datamask_pipeline.diversity.correlation import Joined, Moved, Settled, numbers_joined, numbers_moved
from datamask_pipeline.diversity.moments import Moments
from datamask_pipeline.diversity.swap_models import Floats, Places, SwapModel

SINGLE_FROM = 32
"""Dimensions above which forms are float32 products: they then take most of the time."""

MOST_LEFT = 100
"""A document that is more of a dimension's variance than all but one in so many: of what is left, too few digits are."""
LOOKED = 2e10
"""Numbers that all looks at pairs of one search may read."""


class CorrelationSwaps(SwapModel):
    """The model of minus the squared correlations: a document leaves, and all others are tried in its place.

    Cost: two forms a pair, ``O(d^2)``, and a few passes over a d x d matrix for each document that leaves; of few
    documents the products of all with each other, ``O(K^2 d)`` a pair.

    Args:
        moments: Of the mask.
        rows_TD: The candidates.
    """

    follows = True
    promising = (256, 4)
    in_turn = True

    def __init__(self, moments: Moments, rows_TD: Tensor) -> None:
        self.moments, self.whole_TD = moments, rows_TD
        self.rows_TD = rows_TD.float() if rows_TD.shape[1] > SINGLE_FROM else rows_TD
        self.range_2D = torch.stack([rows_TD.amin(0), rows_TD.amax(0)]).double().cpu()
        self.inside: list[int] | None = None
        self.settled: Settled | None = None
        self.affordable = int(LOOKED / numbers_moved(rows_TD.shape[1]))

    def made_of(self, inside_I: Places) -> None:
        self.inside = inside_I.tolist()

    def additions(self) -> Floats:
        return _numbers(self._joined().change(self.rows_TD))

    def removals(self, inside_I: Places) -> Floats:
        return -_numbers(Moved(self.moments, -1).change(self.whole_TD[inside_I].double()))

    def tangents(self) -> None:
        return None

    def table(self, outside_O: Places, inside_I: Places) -> Floats:
        rows_OD = self.rows_TD[outside_O]
        columns = []
        for document in inside_I.tolist():
            without = self._joined(document)
            itself = self.rows_TD[document : document + 1]
            columns.append(_numbers(without.change(rows_OD)) - _numbers(without.change(itself)))
        return np.stack(columns, axis=1)

    def swap(self, into: int, out: int) -> None:
        self.add(into)
        self.moments, self.settled = self._moved(out, -1), None
        if self.inside is not None:
            self.inside.remove(out)

    def add(self, into: int) -> None:
        self.moments, self.settled = self._moved(into, 1), None
        if self.inside is not None:
            self.inside.append(into)

    def _joined(self, left_out: int | None = None) -> Moved | Settled | Joined:
        """What joining the mask, or the mask without a document, changes."""
        count = self.moments.count - (left_out is not None)
        dim = self.rows_TD.shape[1]
        if self.inside is not None and count >= 2 and numbers_joined(count, dim) < numbers_moved(dim):
            return Joined(self.whole_TD[[one for one in self.inside if one != left_out]].double().cpu())
        if count < 2:
            return Moved(self.moments if left_out is None else self._moved(left_out, -1), 1)
        if self.settled is None:
            self.settled = Settled.of(self.moments, self.rows_TD.dtype)
        if left_out is None:
            settled = self.settled.spread.settled(*self.range_2D)
            return self.settled if settled else Moved(self.moments, 1)
        row_D, before = self.whole_TD[left_out].double().cpu(), self.settled.spread
        spread = before.without(row_D)
        if spread.settled(*self.range_2D) and bool(
            (spread.variance_D >= before.variance_D / MOST_LEFT).all()
        ):
            return self.settled.without(row_D, spread)
        return Moved(self._moved(left_out, -1), 1)

    def _moved(self, document: int, sign: int) -> Moments:
        """The moments with (1) or without (-1) a document."""
        assert self.moments.second_DD is not None, "needs_second was honoured"
        row_D = self.whole_TD[document].double().cpu()
        return Moments(
            count=self.moments.count + sign,
            first_D=self.moments.first_D + sign * row_D,
            second_DD=torch.addr(self.moments.second_DD, row_D, row_D, alpha=sign),
            squared=self.moments.squared + sign * float(row_D @ row_D),
        )


def _numbers(values_T: Tensor) -> Floats:
    numbers_T: Floats = values_T.to(torch.float64).cpu().numpy()
    return numbers_T
