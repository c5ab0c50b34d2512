"""One process's numbers of its documents, and what is done to them. Knows no vector, metric or other process.

Shape suffixes: N documents of this process, G groups, P pairs of columns, B buckets.

What is told to others are whole numbers that add up, the ends of ranges, or the few documents they ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.selection.budget import TIE
from datamask_pipeline.selection.shards.keys import Keys, key_of, lots, shares
from datamask_pipeline.selection.shards.sums import group_sums, limbs_of

Floats = NDArray[np.float64]
Span = tuple[int, int]


class View:
    """Documents of one process with their columns.

    Args:
        numbers_N: Global row number of each, ascending.
        units: (start, stop) of each unit of them, in order: sums inside one are of floats, over them exact.
        groups_N: Group of each.
        costs_N: What each takes of the budget: whole numbers.
        num_groups: G.
    """

    def __init__(
        self,
        numbers_N: NDArray[np.int64],
        units: Sequence[Span],
        groups_N: NDArray[np.int32],
        costs_N: NDArray[np.int64],
        num_groups: int,
    ) -> None:
        self.numbers_N, self.units, self.groups_N, self.costs_N = numbers_N, list(units), groups_N, costs_N
        self.num_groups = num_groups
        self.floats: dict[str, Floats] = {}
        self.masks: dict[str, NDArray[np.bool_]] = {}

    def __len__(self) -> int:
        return len(self.numbers_N)

    def chosen(self, mask: str, columns: Sequence[str]) -> tuple[View, NDArray[np.int64]]:
        """Some of the documents with some of their columns, and their places here; without quotas or costs."""
        places_n = np.flatnonzero(self.masks[mask])
        units = [(int(a), int(b)) for a, b in (np.searchsorted(places_n, span) for span in self.units)]
        ones_n = np.ones(len(places_n), np.int64)
        view = View(self.numbers_N[places_n], units, np.zeros(len(places_n), np.int32), ones_n, 1)
        view.floats = {name: self.floats[name][places_n] for name in columns}
        return view, places_n

    def column(self, name: str) -> Floats:
        """A column of numbers; a mask is one of zeros and ones."""
        return self.floats[name] if name in self.floats else self.masks[name].astype(np.float64)

    # -- sums ---------------------------------------------------------------------------------------------

    def dots(self, pairs: Sequence[tuple[str, str | None]]) -> NDArray[np.int64]:
        """Products of columns, or sums of one, as limbs of shape (P, L)."""
        return np.stack([limbs_of(self._unit_sums(left, right)) for left, right in pairs])

    def _unit_sums(self, left: str, right: str | None) -> Floats:
        left_N = self.column(left)
        right_N = None if right is None else self.column(right)
        sums = [(left_N[a:b] if right_N is None else left_N[a:b] * right_N[a:b]).sum() for a, b in self.units]
        return np.array(sums, np.float64)

    def counts(self, mask: str) -> NDArray[np.int64]:
        """Documents and costs of a mask by group: shape (2, G)."""
        chosen_N = self.masks[mask]
        groups_n, costs_n = self.groups_N[chosen_N], self.costs_N[chosen_N]
        totals_G = np.zeros((2, self.num_groups), np.int64)
        totals_G[0] = np.bincount(groups_n, minlength=self.num_groups)
        totals_G[1] = np.bincount(groups_n, weights=costs_n, minlength=self.num_groups).astype(np.int64)
        return totals_G

    def ends(self, name: str) -> tuple[float, float]:
        """The smallest and the largest number of a column; NaN where one is."""
        column_N = self.column(name)
        return (float(column_N.min()), float(column_N.max())) if len(self) else (np.inf, -np.inf)

    # -- columns ------------------------------------------------------------------------------------------

    def combine(self, into: str, terms: Sequence[tuple[float, str]], plus: float) -> None:
        """The sum of columns times factors, and of a number."""
        total_N = np.full(len(self), plus)
        for factor, name in terms:
            total_N += factor * self.column(name)
        self.floats[into] = total_N

    def copy(self, into: str, name: str) -> None:
        """Another name for a column as it is now; columns are replaced, never written into."""
        kept = self.floats if name in self.floats else self.masks
        kept[into] = kept[name]  # type: ignore[assignment]

    def combine_group(self, into: str, group: int) -> None:
        """The mask of a group."""
        self.masks[into] = self.groups_N == group

    def combine_draw(self, into: str, weights: str, salted: int) -> None:
        """What to rank documents by so that each is among the first ones with its weight: Pareto sampling (Rosen 1997)."""
        weights_N, share_N = self.floats[weights], shares(lots(self.numbers_N, salted))
        with np.errstate(divide="ignore"):
            odds_N = np.log(weights_N) - np.log1p(-weights_N)
        self.floats[into] = odds_N - (np.log(share_N) - np.log1p(-share_N))

    def combine_filling(self, into: str, mask: str, weights: str, salted: int) -> None:
        """What a budget in tokens is filled by: documents of a mask, then others of large weight."""
        lots_N = shares(lots(self.numbers_N, salted))
        weights_N = np.clip(self.floats[weights], 0, 1) + TIE * lots_N
        self.floats[into] = np.where(self.masks[mask], 2 + lots_N, weights_N)

    # -- projection ---------------------------------------------------------------------------------------

    def thresholds(self, name: str) -> tuple[Floats, Floats]:
        """By group, the thresholds below which every document is whole and above which none is left."""
        low_G, high_G = np.full(self.num_groups, np.inf), np.full(self.num_groups, -np.inf)
        point_N = self.floats[name]
        np.minimum.at(low_G, self.groups_N, (point_N - 1) / self.costs_N)
        np.maximum.at(high_G, self.groups_N, point_N / self.costs_N)
        return low_G, high_G

    def taken(self, name: str, taus_G: Floats, most: float) -> NDArray[np.int64]:
        """At these thresholds, what is taken and how fast that falls, over `most` and its square: (2, 2, G) halves."""
        relaxed_N = self._clipped(name, taus_G)
        costs_N = self.costs_N / most
        bending_N = np.where((relaxed_N > 0) & (relaxed_N < 1), costs_N * costs_N, 0.0)
        return np.stack(
            [
                group_sums(relaxed_N * costs_N, self.groups_N, self.num_groups),
                group_sums(bending_N, self.groups_N, self.num_groups),
            ]
        )

    def clip(self, into: str, name: str, taus_G: Floats) -> None:
        """The relaxed mask at these thresholds."""
        self.floats[into] = self._clipped(name, taus_G)

    def _clipped(self, name: str, taus_G: Floats) -> Floats:
        taus = taus_G[0] if self.num_groups == 1 else taus_G[self.groups_N]
        clipped_N: Floats = np.clip(self.floats[name] - taus * self.costs_N, 0, 1)
        return clipped_N

    # -- order --------------------------------------------------------------------------------------------

    def order(
        self, name: str | None, sign: float, spread: float, salted: int, absolute: bool, grouped: bool
    ) -> None:
        """Rank documents from the highest down, equal ones by lot; without a column by lot alone.

        Args:
            name: The column.
            sign: What it is multiplied by.
            spread: The share of a lot that is added to it.
            salted: Of the lots.
            absolute: Whether magnitudes are ranked.
            grouped: Whether each group is ranked by itself.
        """
        self._ties_N = lots(self.numbers_N, salted)
        self._places_N = self.groups_N if grouped else np.zeros(len(self), np.int32)
        self._num_places = self.num_groups if grouped else 1
        if name is None:
            self._keys_N = self._ties_N
        else:
            values_N = sign * self.column(name)
            values_N = np.abs(values_N) if absolute else values_N
            self._keys_N = key_of(values_N + spread * shares(self._ties_N) if spread else values_N)
        self.consider(None, False, None)

    def consider(self, mask: str | None, inside: bool, most_cost: int | None) -> None:
        """Rank only documents in or out of a mask, and of at most this cost."""
        alive_N = np.ones(len(self), bool) if mask is None else self.masks[mask] == inside
        if most_cost is not None:
            alive_N &= self.costs_N <= most_cost
        self._considered_n = self._alive_n = np.flatnonzero(alive_N)

    def histogram(
        self, prefixes_G: Keys, open_G: NDArray[np.bool_], shift: int, bits: int, by_tie: bool, weighted: bool
    ) -> NDArray[np.int64]:
        """Costs, or numbers, of the documents still in question by the next bits of their keys: shape (G, B).

        Args:
            prefixes_G: The bits above those, by group.
            open_G: Groups in which there still is a question.
            shift: Bits below those.
            bits: ``log2(B)``.
            by_tie: Whether keys are equal by now, and lots decide.
            weighted: Whether documents count by their costs.
        """
        words_N = self._ties_N if by_tie else self._keys_N
        alive_n = self._alive_n
        places_n = self._places_N[alive_n]
        words_n = words_N[alive_n]
        if shift + bits < 64 or by_tie:
            above = words_n >> np.uint64(shift + bits) if shift + bits < 64 else np.zeros_like(words_n)
            if shift + bits == 64:  # the first bits of the lots: all bits of the keys are known
                above = self._keys_N[alive_n]
            meant_n = (above == prefixes_G[places_n]) & open_G[places_n]
            alive_n, places_n, words_n = alive_n[meant_n], places_n[meant_n], words_n[meant_n]
            self._alive_n = alive_n
        buckets_n = ((words_n >> np.uint64(shift)) & np.uint64((1 << bits) - 1)).astype(np.int64)
        size = self._num_places << bits
        flat_n = (places_n.astype(np.int64) << bits) + buckets_n
        weights_n = self.costs_N[alive_n] if weighted else None
        counts = np.bincount(flat_n, weights=weights_n, minlength=size)
        return counts.astype(np.int64).reshape(self._num_places, 1 << bits)

    def choose(self, into: str, keys_G: Keys, ties_G: Keys, beside: str | None) -> None:
        """The mask of those ranked above these by group, beside those of another mask."""
        mask_N = np.zeros(len(self), bool) if beside is None else self.masks[beside].copy()
        for part_n in self._parts(self._considered_n):
            keys_n, ties_n, places_n = self._keys_N[part_n], self._ties_N[part_n], self._places_N[part_n]
            above_n = (keys_n > keys_G[places_n]) | (
                (keys_n == keys_G[places_n]) & (ties_n > ties_G[places_n])
            )
            mask_N[part_n[above_n]] = True
        self.masks[into] = mask_N

    @staticmethod
    def _parts(index_n: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        for start in range(0, len(index_n), 1 << 20):
            yield index_n[start : start + (1 << 20)]
