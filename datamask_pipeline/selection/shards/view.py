"""One process's numbers of its documents, and what is done to them. Knows no vector, metric or other process.

Shape suffixes: N documents of this process, G groups, P pairs of columns, B buckets.

What is told to others are whole numbers that add up, the ends of ranges, or the few documents they ask for. A column lies
in a file, see `spill`, and is gone through piece by piece: what is made on the way stays in the processor's cache, and no
memory is taken by N.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from datamask_pipeline.selection.budget import TIE
from datamask_pipeline.selection.shards.keys import Keys, key_of, lots, shares
from datamask_pipeline.selection.shards.sums import group_sums, limbs_of
from datamask_pipeline.spill import Room

Floats = NDArray[np.float64]
Span = tuple[int, int]
Terms = Sequence[tuple[float, str | None]]
"""A sum of columns times factors, in order; where no column is named, of a number."""

PIECE, WIDE_PIECE = 1 << 15, 1 << 18
"""Documents of a piece; and of one whose histogram has as many buckets as a usual piece has documents."""


class View:
    """Documents of one process with their columns.

    Args:
        numbers_N: Global row number of each, ascending.
        units: (start, stop) of each unit of them, in order: sums inside one are of floats, over them exact.
        groups_N: Group of each.
        costs_N: What each takes of the budget: whole numbers.
        num_groups: G.
        room: Where long columns lie.
    """

    def __init__(
        self,
        numbers_N: NDArray[np.int64],
        units: Sequence[Span],
        groups_N: NDArray[np.int32],
        costs_N: NDArray[np.int64],
        num_groups: int,
        room: Room,
    ) -> None:
        self.numbers_N, self.units, self.groups_N, self.costs_N = numbers_N, list(units), groups_N, costs_N
        self.num_groups, self.room = num_groups, room
        self.floats: dict[str, Floats] = {}
        self.masks: dict[str, NDArray[np.bool_]] = {}
        self._alive_N: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.numbers_N)

    def at(self, places_n: NDArray[np.int64]) -> View:
        """The documents at some places, ascending, without their columns."""
        units = [(int(a), int(b)) for a, b in (np.searchsorted(places_n, span) for span in self.units)]
        numbers_n, groups_n, costs_n = (
            self.room.taken(values_N, places_n) for values_N in (self.numbers_N, self.groups_N, self.costs_N)
        )
        return View(numbers_n, units, groups_n, costs_n, self.num_groups, self.room)

    def chosen(self, mask: str, columns: Sequence[str]) -> tuple[View, NDArray[np.int64]]:
        """Some of the documents with some of their columns, and their places here; without quotas or costs."""
        places_n = np.flatnonzero(self.masks[mask])
        view = self.at(places_n)
        view.groups_N[:], view.costs_N[:] = 0, 1
        view.num_groups = 1
        view.floats = {name: self.room.taken(self.floats[name], places_n) for name in columns}
        return view, places_n

    def column(self, dtype: DTypeLike) -> NDArray[Any]:
        """A number of each document, yet to be written."""
        return self.room.array(len(self), dtype)

    def part(self, name: str, span: slice) -> Floats:
        """Some of a column of numbers; of a mask, as zeros and ones."""
        return self.floats[name][span] if name in self.floats else self.masks[name][span].astype(np.float64)

    def pieces(self, size: int = PIECE) -> Iterator[slice]:
        """All documents, some at a time."""
        for start in range(0, len(self), size):
            yield slice(start, min(start + size, len(self)))

    def _sum(self, terms: Terms, span: slice) -> Floats:
        total_n = np.zeros(span.stop - span.start)
        for factor, name in terms:
            total_n += factor if name is None else factor * self.part(name, span)
        return total_n

    # -- sums ---------------------------------------------------------------------------------------------

    def dots(self, pairs: Sequence[tuple[str | Terms, str | Terms | None]]) -> NDArray[np.int64]:
        """Products of columns or of sums of some, or sums of one, as limbs of shape (P, L)."""
        sums = np.empty((len(pairs), len(self.units)))
        for unit, (start, stop) in enumerate(self.units):
            span = slice(start, stop)
            for number, (left, right) in enumerate(pairs):
                left_n = self.values(left, span)
                sums[number, unit] = (left_n if right is None else left_n * self.values(right, span)).sum()
        return np.stack([limbs_of(sums_U) for sums_U in sums])

    def values(self, column: str | Terms, span: slice) -> Floats:
        """Some of a column, or of a sum of columns."""
        return self.part(column, span) if isinstance(column, str) else self._sum(column, span)

    def counts(self, mask: str) -> NDArray[np.int64]:
        """Documents and costs of a mask by group: shape (2, G)."""
        totals_G = np.zeros((2, self.num_groups), np.int64)
        for piece in self.pieces():
            chosen_n = self.masks[mask][piece]
            groups_n, costs_n = self.groups_N[piece][chosen_n], self.costs_N[piece][chosen_n]
            totals_G[0] += np.bincount(groups_n, minlength=self.num_groups)
            totals_G[1] += np.bincount(groups_n, costs_n, self.num_groups).astype(np.int64)
        return totals_G

    def tally(self, columns: Sequence[str | Terms]) -> NDArray[np.int64]:
        """Documents of another number than 0, and of one between 0 and 1: shape (columns, 2)."""
        found = np.zeros((len(columns), 2), np.int64)
        for piece in self.pieces():
            for number, column in enumerate(columns):
                values_n = self.values(column, piece)
                found[number] += (
                    np.count_nonzero(values_n),
                    np.count_nonzero((values_n > 0) & (values_n < 1)),
                )
        return found

    def ends(self, name: str) -> tuple[float, float]:
        """The smallest and the largest number of a column; NaN where one is."""
        column_N = self.floats[name]
        return (float(column_N.min()), float(column_N.max())) if len(self) else (np.inf, -np.inf)

    # -- columns ------------------------------------------------------------------------------------------

    def combine(self, into: str, terms: Terms) -> None:
        """The sum of columns times factors, and of numbers."""
        total_N = self.column(np.float64)
        for piece in self.pieces():
            total_N[piece] = self._sum(terms, piece)
        self.floats[into] = total_N

    def copy(self, into: str, name: str) -> None:
        """Another name for a column as it is now; columns are replaced, never written into."""
        kept = self.floats if name in self.floats else self.masks
        kept[into] = kept[name]  # type: ignore[assignment]

    def drop(self, names: Sequence[str]) -> None:
        """Give columns back."""
        for name in names:
            self.floats.pop(name, None)
            self.masks.pop(name, None)

    def combine_product(self, into: str, left: str, right: str) -> None:
        """The product of two columns."""
        total_N = self.column(np.float64)
        for piece in self.pieces():
            total_N[piece] = self.part(left, piece) * self.part(right, piece)
        self.floats[into] = total_N

    def combine_between(self, into: str, name: str, low: float, high: float) -> None:
        """The mask of those whose number lies between these, both included."""
        mask_N = self.column(bool)
        for piece in self.pieces():
            values_n = self.floats[name][piece]
            mask_N[piece] = (values_n >= low) & (values_n <= high)
        self.masks[into] = mask_N

    def combine_group(self, into: str, group: int) -> None:
        """The mask of a group."""
        mask_N = self.column(bool)
        np.equal(self.groups_N, group, out=mask_N)
        self.masks[into] = mask_N

    def combine_draw(self, into: str, weights: str, salted: int) -> None:
        """What to rank documents by so that each is among the first ones with its weight: Pareto sampling (Rosen 1997)."""
        total_N = self.column(np.float64)
        for piece in self.pieces():
            weights_n, share_n = self.floats[weights][piece], shares(lots(self.numbers_N[piece], salted))
            with np.errstate(divide="ignore"):
                odds_n = np.log(weights_n) - np.log1p(-weights_n)
            total_N[piece] = odds_n - (np.log(share_n) - np.log1p(-share_n))
        self.floats[into] = total_N

    def combine_filling(self, into: str, mask: str, weights: str, salted: int) -> None:
        """What a budget in tokens is filled by: documents of a mask, then others of large weight."""
        total_N = self.column(np.float64)
        for piece in self.pieces():
            lots_n = shares(lots(self.numbers_N[piece], salted))
            weights_n = np.clip(self.floats[weights][piece], 0, 1) + TIE * lots_n
            total_N[piece] = np.where(self.masks[mask][piece], 2 + lots_n, weights_n)
        self.floats[into] = total_N

    # -- projection ---------------------------------------------------------------------------------------

    def thresholds(self, name: str) -> tuple[Floats, Floats]:
        """By group, the thresholds below which every document is whole and above which none is left."""
        low_G, high_G = np.full(self.num_groups, np.inf), np.full(self.num_groups, -np.inf)
        for piece in self.pieces():
            point_n, costs_n, groups_n = (
                self.floats[name][piece],
                self.costs_N[piece],
                self.groups_N[piece],
            )
            below_n, above_n = (point_n - 1) / costs_n, point_n / costs_n
            if self.num_groups == 1:
                low_G[0], high_G[0] = min(low_G[0], below_n.min()), max(high_G[0], above_n.max())
            else:
                np.minimum.at(low_G, groups_n, below_n)
                np.maximum.at(high_G, groups_n, above_n)
        return low_G, high_G

    def taken(self, name: str, taus_G: Floats, most: float) -> NDArray[np.int64]:
        """At these thresholds, what is taken and how fast that falls, over `most` and its square: (2, 2, G) halves."""
        totals = np.zeros((2, 2, self.num_groups), np.int64)
        for piece in self.pieces():
            relaxed_n, groups_n = self._clipped(name, taus_G, piece), self.groups_N[piece]
            costs_n = self.costs_N[piece] / most
            bending_n = ((relaxed_n > 0) & (relaxed_n < 1)) * (costs_n * costs_n)
            totals[0] += group_sums(relaxed_n * costs_n, groups_n, self.num_groups)
            totals[1] += group_sums(bending_n, groups_n, self.num_groups)
        return totals

    def clip(self, into: str, name: str, taus_G: Floats) -> None:
        """The relaxed mask at these thresholds."""
        clipped_N = self.column(np.float64)
        for piece in self.pieces():
            clipped_N[piece] = self._clipped(name, taus_G, piece)
        self.floats[into] = clipped_N

    def _clipped(self, name: str, taus_G: Floats, piece: slice) -> Floats:
        taus = taus_G[0] if self.num_groups == 1 else taus_G[self.groups_N[piece]]
        clipped_n = self.floats[name][piece] - taus * self.costs_N[piece]
        return np.clip(clipped_n, 0, 1, out=clipped_n)

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
        self._salted, self._grouped = salted, grouped
        self._keys_N = self.column(np.uint64)
        for piece in self.pieces():
            if name is None:
                self._keys_N[piece] = self._lots(piece)
                continue
            values_n = sign * self.part(name, piece)
            if absolute:
                np.abs(values_n, out=values_n)
            if spread:
                values_n += spread * shares(self._lots(piece))
            self._keys_N[piece] = key_of(values_n)
        self.consider(None, False, None)

    def _lots(self, index: slice | NDArray[np.int64]) -> Keys:
        return lots(self.numbers_N[index], self._salted)

    def _places(self, index: slice | NDArray[np.int64]) -> NDArray[np.int32]:
        groups_n = self.groups_N[index]
        return groups_n if self._grouped else np.zeros_like(groups_n)

    def consider(self, mask: str | None, inside: bool, most_cost: int | None) -> None:
        """Rank only documents in or out of a mask, and of at most this cost."""
        self._considered = None if mask is None else self.masks[mask], inside, most_cost
        self._num_alive: int | None = None

    def _is_considered(self, piece: slice) -> NDArray[np.bool_]:
        mask_N, inside, most_cost = self._considered
        found_n = np.ones(piece.stop - piece.start, bool) if mask_N is None else mask_N[piece] == inside
        if most_cost is not None:
            found_n &= self.costs_N[piece] <= most_cost
        return found_n

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
        num_places, first = self.num_groups if self._grouped else 1, shift + bits == 64
        counts = np.zeros(num_places << bits, np.int64)

        def meant(keys_n: Keys, places_n: NDArray[np.int32]) -> NDArray[np.bool_]:
            above_n = keys_n if first else keys_n >> np.uint64(shift + bits)
            found: NDArray[np.bool_] = (above_n == prefixes_G[places_n]) & open_G[places_n]
            return found

        def add(index: slice | NDArray[np.int64], words_n: Keys, kept_n: NDArray[np.bool_] | None) -> None:
            flat_n = ((words_n >> np.uint64(shift)) & np.uint64((1 << bits) - 1)).astype(np.int64)
            if num_places > 1:
                flat_n += self._places(index).astype(np.int64) << bits
            costs_n = self.costs_N[index] if weighted else None
            if kept_n is not None:
                flat_n, costs_n = flat_n[kept_n], None if costs_n is None else costs_n[kept_n]
            counts[:] += np.bincount(flat_n, costs_n, len(counts)).astype(np.int64)

        if first and not by_tie:
            everybody = self._considered[0] is None and self._considered[2] is None
            for piece in self.pieces(WIDE_PIECE):
                add(piece, self._keys_N[piece], None if everybody else self._is_considered(piece))
        else:
            for part_n in self._alive(meant, by_tie and not first):
                add(part_n, self._lots(part_n) if by_tie else self._keys_N[part_n], None)
        return counts.reshape(num_places, 1 << bits)

    def _alive(
        self, meant: Callable[[Keys, NDArray[np.int32]], NDArray[np.bool_]], by_lot: bool
    ) -> Iterator[NDArray[np.int64]]:
        """The documents still in question, some at a time: of those before the ones that are meant by their words."""
        number = 0
        if self._num_alive is None:
            if self._alive_N is None:
                self._alive_N = self.column(np.int64)
            for piece in self.pieces():
                found_n = meant(self._keys_N[piece], self._places(piece)) & self._is_considered(piece)
                index_n = piece.start + np.flatnonzero(found_n)
                self._alive_N[number : number + len(index_n)] = index_n
                number += len(index_n)
                yield index_n
        else:
            assert self._alive_N is not None, "written with the number"
            for start in range(0, self._num_alive, PIECE):
                index_n = self._alive_N[start : min(start + PIECE, self._num_alive)]
                words_n = self._lots(index_n) if by_lot else self._keys_N[index_n]
                index_n = index_n[meant(words_n, self._places(index_n))]
                self._alive_N[number : number + len(index_n)] = index_n
                number += len(index_n)
                yield index_n
        self._num_alive = number

    def choose(self, into: str, keys_G: Keys, ties_G: Keys, beside: str | None) -> None:
        """The mask of those ranked above these by group, beside those of another mask."""
        mask_N = self.column(bool)
        for piece in self.pieces():
            mask_N[piece] = False if beside is None else self.masks[beside][piece]
            keys_n, places_n = self._keys_N[piece], self._places(piece)
            above_n = keys_n > keys_G[places_n]
            equal_n = np.flatnonzero(keys_n == keys_G[places_n])
            above_n[equal_n] = self._lots(piece.start + equal_n) > ties_G[places_n[equal_n]]
            mask_N[piece] |= above_n & self._is_considered(piece)
        self.masks[into] = mask_N
