"""Which pairs of documents to swap, by a model of what that does. Knows no metric, moments or relaxation.

Shape suffixes: T candidates, P pairs of them that are tried.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from datamask_pipeline.diversity.swap_models import Floats, Places, SwapModel
from datamask_pipeline.selection.budget import Budget

LEAST_GAIN = 1e-12
NOWHERE: tuple[Places, Places] = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
HOT = 64
"""Documents outside that a look at all pairs hands back, those of the best pairs."""
ROUNDS = 3
"""Looks at every document inside in turn that are time enough to go without the promising ones first: where pairs are dear
to look at these end at once, and lower."""
FEW_PAIRS, TRIED_IN_TWOS = 2**18, 512
"""Pairs up to which two are exchanged at once where no single one gains, and how many, the least bad, are tried by twos."""


class TokensLeft:
    """What a budget of tokens has left, and what the candidates take of it."""

    def __init__(self, budget: Budget, mask_N: Tensor, index_T: Tensor) -> None:
        self.left = budget.limits[0] - float(budget.costs_N[mask_N].sum())
        self.costs_T = budget.costs_N[index_T].numpy()

    def fits(self, outside: Places, inside: Places) -> NDArray[np.bool_]:
        """Which swaps stay within the budget."""
        fitting: NDArray[np.bool_] = self.costs_T[outside][:, None] - self.costs_T[inside] <= self.left
        return fitting

    def swap(self, into: int, out: int) -> None:
        """Take note of one."""
        self.left -= float(self.costs_T[into] - self.costs_T[out])


class Search:
    """Finds pairs (out, in) one after the other, each the best of its group on the model left by those before it.

    Args:
        model: Brought up to date with every pair.
        selected_T: Which candidates the mask holds.
        groups_T: A pair is of one group.
        tokens: What is left of a budget of tokens, where there is one.
        least_gain: Of a pair.
    """

    def __init__(
        self,
        model: SwapModel,
        selected_T: NDArray[np.bool_],
        groups_T: Places,
        tokens: TokensLeft | None,
        least_gain: float = LEAST_GAIN,
    ) -> None:
        self.model, self.selected_T, self.groups_T = model, selected_T.copy(), groups_T
        self.tokens, self.least_gain = tokens, least_gain
        self.movable_T = np.ones_like(self.selected_T)
        self.pairs: list[tuple[int, int]] = []
        self.looks_left = model.affordable  # where they are in turn

    def promising(self) -> list[tuple[int, int]]:
        """Every pair found among the most promising candidates."""
        for group in np.unique(self.groups_T):
            self._exhaust(group, len(self.groups_T), NOWHERE)
        return self.pairs

    def thorough(self, most: int) -> list[tuple[int, int]]:
        """Every pair found, until of all pairs that are affordable to look at none gains, or `most` are found.

        Of few pairs of an exact model those are tried two at once, too, that alone would cost least.
        """
        groups, found = np.unique(self.groups_T), -1
        if not (self.model.in_turn and self._num_rounds() >= ROUNDS):
            self.promising()
        while found < len(self.pairs) < most:
            found = len(self.pairs)
            for group in groups:
                if self.model.in_turn:
                    self._exchange_in_turn(group, most - len(self.pairs))
                else:
                    self._exhaust(group, most - len(self.pairs), self._look(group))
            if self.model.in_turn and len(groups) == 1:
                break
            if found == len(self.pairs) <= most - 2:
                self._exchange_two()
        return self.pairs

    def _num_rounds(self) -> float:
        """How often every document inside can be looked at in turn."""
        sides = [self._sides(group) for group in np.unique(self.groups_T)]
        return self.looks_left / max(1, sum(len(outside) * len(inside) for outside, inside in sides))

    def _exhaust(self, group: int, most: int, hot: tuple[Places, Places]) -> None:
        """The best pair of the promising candidates and of those that are hot, until none gains."""
        num_outside, num_inside = self.model.promising
        for _ in range(most):
            outside, inside = self._sides(group)
            if len(outside) > num_outside:
                outside = _with(
                    best_places(self.model.additions()[outside], outside, num_outside), hot[0], outside
                )
            if len(inside) > num_inside:
                inside = _with(best_places(self.model.removals(inside), inside, num_inside), hot[1], inside)
            if not len(outside) or not len(inside):
                return
            table = self._table(outside, inside)
            row, column = divmod(int(table.argmax()), len(inside))
            if not table[row, column] > self.least_gain:
                return
            self._swap(int(outside[row]), int(inside[column]))

    def _exchange_in_turn(self, group: int, most: int) -> None:
        """Each document inside, the cheapest first, for the best in its place, as long as one gains and there is time."""
        outside, inside = self._sides(group)
        turns = deque(inside[np.argsort(-self.model.removals(inside), kind="stable")])
        kept = 0
        while most and kept < len(turns) and 0 < len(outside) <= self.looks_left:
            out = turns.popleft()
            gains_O = self._table(outside, np.array([out]))[:, 0]
            into = outside[gains_O.argmax()]
            kept, self.looks_left = kept + 1, self.looks_left - len(outside)
            if gains_O.max() > self.least_gain:
                self._swap(int(into), int(out))
                outside, _ = self._sides(group)
                kept, most, out = 0, most - 1, into
            turns.append(out)

    def _look(self, group: int) -> tuple[Places, Places]:
        """The candidates, outside and inside, of the best of all pairs that gain."""
        outside, inside = self._sides(group)
        tangents_T = self.model.tangents()
        if tangents_T is not None and len(inside):
            outside = outside[tangents_T[outside] > tangents_T[inside].min() + self.least_gain]
            inside = inside[tangents_T[inside] < tangents_T[outside].max(initial=-np.inf)]
        if not len(outside) or not len(inside):
            return NOWHERE
        if len(outside) * len(inside) > self.model.affordable:
            square = math.isqrt(self.model.affordable)
            most = max(square, self.model.affordable // len(outside))
            inside = best_places(self.model.removals(inside), inside, most)
            outside = best_places(
                self.model.additions()[outside], outside, self.model.affordable // len(inside)
            )
        gains, partners = [], []
        for part in np.array_split(outside, math.ceil(len(outside) * len(inside) / self.model.pairs_at_once)):
            table = self._table(part, inside)
            gains.append(table.max(1))
            partners.append(inside[table.argmax(1)])
        gains_O, partners_O = np.concatenate(gains), np.concatenate(partners)
        order = np.argsort(-gains_O, kind="stable")[:HOT]
        order = order[gains_O[order] > self.least_gain]
        return outside[order], np.unique(partners_O[order])

    def _exchange_two(self) -> None:
        """The best two pairs at once, if they gain together."""
        if self.tokens is not None or self.model.bends(*NOWHERE) is None:
            return
        sides = [self._sides(group) for group in np.unique(self.groups_T)]
        sides = [both for both in sides if len(both[0]) and len(both[1])]
        if not 0 < sum(len(outside) * len(inside) for outside, inside in sides) <= FEW_PAIRS:
            return
        gains_P = np.concatenate([self._table(*both).ravel() for both in sides])
        into_P = np.concatenate([np.repeat(outside, len(inside)) for outside, inside in sides])
        out_P = np.concatenate([np.tile(inside, len(outside)) for outside, inside in sides])
        tried = best_places(gains_P, np.arange(len(gains_P)), TRIED_IN_TWOS)
        into_P, out_P = into_P[tried], out_P[tried]
        places, where_2P = np.unique(np.concatenate([into_P, out_P]), return_inverse=True)
        bends = self.model.bends(places, places)
        assert bends is not None, "asked for above"
        first_P, last_P = np.split(where_2P, 2)
        moved = bends[first_P] - bends[last_P]
        table_PP = gains_P[tried][:, None] + gains_P[tried] + moved[:, first_P] - moved[:, last_P]
        table_PP[(into_P[:, None] == into_P) | (out_P[:, None] == out_P)] = -np.inf
        left, right = divmod(int(table_PP.argmax()), len(tried))
        if table_PP[left, right] > self.least_gain:
            self._swap(int(into_P[left]), int(out_P[left]))
            self._swap(int(into_P[right]), int(out_P[right]))

    def _sides(self, group: int) -> tuple[Places, Places]:
        members_T = (self.groups_T == group) & self.movable_T
        return np.flatnonzero(members_T & ~self.selected_T), np.flatnonzero(members_T & self.selected_T)

    def _table(self, outside: Places, inside: Places) -> Floats:
        table = self.model.table(outside, inside)
        return table if self.tokens is None else np.where(self.tokens.fits(outside, inside), table, -np.inf)

    def _swap(self, into: int, out: int) -> None:
        if self.tokens is not None:
            self.tokens.swap(into, out)
        self.pairs.append((out, into))
        self.selected_T[into], self.selected_T[out] = True, False
        self.model.swap(into, out)
        if not self.model.follows:
            self.movable_T[[into, out]] = False  # what follows is unknown: each document moves once


def best_places(values: Floats, places: Places, count: int) -> Places:
    """Those of the largest values, one of each place."""
    if len(places) <= count:
        return places
    return places[np.argpartition(-values, count)[:count]]


def _with(places: Places, hot: Places, allowed: Places) -> Places:
    """Both, those of the second that are allowed."""
    return np.union1d(places, np.intersect1d(hot, allowed)) if len(hot) else places
