"""What swapping two documents does to squared correlations, exactly. Knows no quality, budget or mask.

Shape suffixes: T candidates, O of them outside a mask, I inside it, D embedding dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from datamask_pipeline.diversity.correlation import (
    Joined,
    Moved,
    Settled,
    Spread,
    correlation_of,
    correlations_without,
    numbers_joined,
    numbers_moved,
)
from datamask_pipeline.diversity.moments import Moments
from datamask_pipeline.diversity.swap_models import Floats, Places, SwapModel

SINGLE_FROM = 32
"""Dimensions above which forms are float32 products: they then take most of the time."""

MOST_LEFT = 100
"""A document that is more of a dimension's variance than all but one in so many: of what is left, too few digits are."""
LOOKED = 2e10
"""Numbers that all looks at pairs of one search may read."""
AT_ONCE = 2**17
"""Numbers of the forms without each of several documents that are made at once: of few dimensions most of the time of one
goes into calls."""

Form = Moved | Settled | Joined
"""What joining a mask changes."""


class CorrelationSwaps(SwapModel):
    """The model of minus the squared correlations: a document leaves, and all others are tried in its place.

    Cost: two forms a pair, ``O(d^2)``, and a few passes over a d x d matrix for each document that leaves; of few
    documents the products of all with each other, ``O(K^2 d)`` a pair.

    Args:
        moments: Of the mask.
        rows_TD: The candidates.
        inside_I: Those that the mask is made of, where there are no others.
    """

    follows = True
    promising = (256, 4)
    in_turn = True

    def __init__(self, moments: Moments, rows_TD: Tensor, inside_I: Places | None = None) -> None:
        self.moments, self.whole_TD = moments, rows_TD
        self.rows_TD = rows_TD.float() if rows_TD.shape[1] > SINGLE_FROM else rows_TD
        self.range_2D = torch.stack([rows_TD.amin(0), rows_TD.amax(0)]).double().cpu()
        self.inside: list[int] | None = None if inside_I is None else inside_I.tolist()
        self.correlation_DD: Tensor | None = None
        self.affordable = int(LOOKED / numbers_moved(moments.count, rows_TD.shape[1]))

    def additions(self) -> Floats:
        return _numbers(self._joined().change(self.rows_TD))

    def removals(self, inside_I: Places) -> Floats:
        return -_numbers(Moved(self.moments, -1).change(self.whole_TD[inside_I].double()))

    def tangents(self) -> None:
        return None

    def table(self, outside_O: Places, inside_I: Places) -> Floats:
        rows_OD, changes_IO = self.rows_TD[outside_O], np.empty((len(inside_I), len(outside_O)))
        for places, without in self._without(inside_I, len(outside_O)):
            own_ID = self.rows_TD[inside_I[places]]
            itself = without.change(own_ID[:, None] if isinstance(without, Settled) else own_ID)
            changes_IO[places] = _numbers(without.change(rows_OD) - itself)
        return changes_IO.T

    def swap(self, into: int, out: int) -> None:
        self.add(into)
        self.moments, self.correlation_DD = self._moved(out, -1), None
        if self.inside is not None:
            self.inside.remove(out)

    def add(self, into: int) -> None:
        self.moments, self.correlation_DD = self._moved(into, 1), None
        if self.inside is not None:
            self.inside.append(into)

    def _joined(self) -> Form:
        """What joining the mask changes."""
        if self.moments.count >= 2:
            spread = Spread.of(self.moments)
            if bool(spread.settled(*self.range_2D)):
                return self._settled(spread)
            if self._are_few(self.moments.count):
                return Joined(self._members())
        return Moved(self.moments, 1)

    def _without(self, inside_I: Places, num_rows: int) -> Iterator[tuple[Places, Form]]:
        """What joining the mask without each of some documents changes: places among them, and the form of these masks.

        Args:
            inside_I: The documents.
            num_rows: How many rows each form will be asked about.
        """
        settled_I = np.zeros(len(inside_I), bool)
        if self.moments.count - 1 >= 2:
            before, rows_ID = Spread.of(self.moments), self.whole_TD[inside_I].double().cpu()
            spread = before.without(rows_ID)
            kept_I = (spread.variance_D >= before.variance_D / MOST_LEFT).all(-1)
            settled_I = (spread.settled(*self.range_2D) & kept_I).numpy()
            dim = rows_ID.shape[1]
            together = max(1, AT_ONCE // (dim * (dim + num_rows)))
            for places in _parts(np.flatnonzero(settled_I), together):
                of_part = spread if len(places) == len(inside_I) else spread.at(places)
                yield places, self._settled_without(inside_I[places], before, rows_ID[places], of_part)
        are_few = self._are_few(self.moments.count - 1)
        for place in np.flatnonzero(~settled_I).tolist():
            document = int(inside_I[place])
            form = Joined(self._members(document)) if are_few else Moved(self._moved(document, -1), 1)
            yield np.array([place]), form

    def _are_few(self, count: float) -> bool:
        """Whether so many documents' products with each other are the cheapest form."""
        dim = self.rows_TD.shape[1]
        return (
            self.inside is not None
            and count >= 2
            and numbers_joined(count, dim) < numbers_moved(math.inf, dim)
        )

    def _settled(self, spread: Spread) -> Settled:
        """What joining the mask changes where it is settled."""
        dim, dtype = self.rows_TD.shape[1], self.rows_TD.dtype
        if self.inside is not None and _num_pairs(len(self.inside)) < dim:
            return Settled.of_few(spread, self._members(), dtype)
        members_KD = self._members() if self.inside is not None and 2 * len(self.inside) < dim else None
        return Settled.of_many(spread, self._correlation(spread), members_KD)

    def _settled_without(self, inside_I: Places, before: Spread, rows_ID: Tensor, spread: Spread) -> Settled:
        """What joining the mask without each of some documents changes where all these masks are settled."""
        dim, dtype = self.rows_TD.shape[1], self.rows_TD.dtype
        rows_IKD = None
        if self.inside is not None and 2 * (len(self.inside) - 1) < dim:
            inside = np.array(self.inside)
            others_IK = np.stack([inside[inside != document] for document in inside_I.tolist()])
            rows_IKD = self.whole_TD[others_IK].double().cpu()
            if _num_pairs(len(self.inside) - 1) < dim:
                return Settled.of_few(spread, rows_IKD, dtype)
        correlation_IDD = correlations_without(self._correlation(before), before, rows_ID, spread)
        return Settled.of_many(spread, correlation_IDD, rows_IKD)

    def _members(self, left_out: int | None = None) -> Tensor:
        """The vectors of the mask, or of all but one of its documents."""
        assert self.inside is not None, "the mask is made of these"
        return self.whole_TD[[one for one in self.inside if one != left_out]].double().cpu()

    def _correlation(self, spread: Spread) -> Tensor:
        """The mask's correlations, in the precision of forms."""
        if self.correlation_DD is None:
            self.correlation_DD = correlation_of(self.moments, spread).to(self.rows_TD.dtype)
        return self.correlation_DD

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


def _parts(places: Places, size: int) -> list[Places]:
    """So many places at a time."""
    return np.split(places, range(size, len(places), size)) if len(places) else []


def _num_pairs(count: int) -> int:
    """Of documents, with themselves included."""
    return count * (count + 1) // 2


def _numbers(values_T: Tensor) -> Floats:
    numbers_T: Floats = values_T.to(torch.float64).cpu().numpy()
    return numbers_T
