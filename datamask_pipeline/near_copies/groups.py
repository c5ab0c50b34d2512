"""Who stands for whom: a vector is represented by the first one before it that is near and stands for itself.

So every copy is within the threshold of its own representative: copies of copies do not chain. What stands for a vector
depends on those before it and on no later one: vectors that come later change nothing. Knows pairs and cosines; no file.

Shape suffixes: Q vectors, n of them, P pairs, L bands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.near_copies.buckets import Held, Pairs, pairs_between, pairs_within
from datamask_pipeline.near_copies.signatures import Keys
from datamask_pipeline.near_copies.vectors import Vectors, cosines
from datamask_pipeline.spill import Room

MOST_LISTED = 2**20
"""Pairs compared before others are sought; a group of so many is taken by halves, not pair by pair."""


@dataclass(frozen=True)
class Block:
    """Consecutive new vectors that are being decided.

    Attributes:
        most_apart: Squared distance that sketches of near-copies may have.
        first_row: Of the block among all vectors.
        keys: Their signatures, of Q vectors.
        representatives_Q: int64 row of what stands for each; -1 where it is not yet found.
        cosines_Q: float64 cosine to it.
        room: Where signatures of some of them lie.
    """

    most_apart: int
    vectors: Vectors
    threshold: float
    first_row: int
    keys: Keys
    representatives_Q: NDArray[np.int64]
    cosines_Q: NDArray[np.float64]
    room: Room

    def match(self, asked_n: NDArray[np.int64], held: Sequence[Held]) -> int:
        """Find what stands for these rows of the block among held vectors, which stand for themselves.

        Args:
            asked_n: Rows of the block, ascending.
            held: The held vectors.

        Returns:
            How many pairs were compared.
        """
        compared, nobody = 0, np.iinfo(np.int64).max
        keys = self.keys.chosen(asked_n, self.room)
        best_n = np.full(len(asked_n), nobody)
        for asked_P, rows_P in _gathered(pairs_between(keys, held, self.most_apart)):
            better_P = rows_P < best_n[asked_P]
            asked_P, rows_P = asked_P[better_P], rows_P[better_P]
            cosines_P = self._cosines(asked_n[asked_P], rows_P)
            compared += len(asked_P)
            near_P = cosines_P >= self.threshold
            # Pairs come by place asked for, then by row held: the first near one stands for it.
            found, first = np.unique(asked_P[near_P], return_index=True)
            best_n[found] = rows_P[near_P][first]
            self.cosines_Q[asked_n[found]] = cosines_P[near_P][first]
        matched_n = best_n < nobody
        self.representatives_Q[asked_n[matched_n]] = best_n[matched_n]
        return compared

    def decide(self, asked_n: NDArray[np.int64]) -> NDArray[np.int64]:
        """Find what stands for these rows of the block among themselves, and which stand for themselves.

        Args:
            asked_n: Rows of the block, ascending, none of them near a vector before.

        Returns:
            Those that stand for themselves.
        """
        listed, num_listed = [], 0
        for pairs in _gathered(pairs_within(self.keys.chosen(asked_n, self.room), self.most_apart)):
            listed.append(pairs)
            num_listed += len(pairs[0])
            if num_listed > MOST_LISTED and len(asked_n) > 1:
                return self._decide_by_halves(asked_n)
        pairs = _distinct(listed)
        cosines_P = self._cosines(asked_n[pairs[0]], self.first_row + asked_n[pairs[1]])
        near_P = cosines_P >= self.threshold
        standing_n = np.ones(len(asked_n), bool)
        near = (values_P[near_P].tolist() for values_P in (*pairs, cosines_P))
        for later, earlier, cosine in zip(*near, strict=True):
            if standing_n[earlier] and standing_n[later]:
                standing_n[later] = False
                self.representatives_Q[asked_n[later]] = self.first_row + asked_n[earlier]
                self.cosines_Q[asked_n[later]] = cosine
        own_n = asked_n[standing_n]
        self.representatives_Q[own_n], self.cosines_Q[own_n] = self.first_row + own_n, 1.0
        return own_n

    def _decide_by_halves(self, asked_n: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same: of a large group the first half has one representative, which then stands for the second."""
        middle = len(asked_n) // 2
        first_n, second_n = self.decide(asked_n[:middle]), asked_n[middle:]
        self.match(second_n, [Held.of(self.keys.chosen(first_n, self.room), self.first_row + first_n)])
        return np.concatenate([first_n, self.decide(second_n[self.representatives_Q[second_n] < 0])])

    def _cosines(self, asked_P: NDArray[np.int64], rows_P: NDArray[np.int64]) -> NDArray[np.float64]:
        return cosines(self.vectors, self.first_row + asked_P, rows_P)


def _gathered(batches: Iterable[Pairs]) -> Iterator[Pairs]:
    """Larger batches, each pair once in it, by their first rows and then by their second."""
    waiting: list[Pairs] = []
    num_waiting = 0
    for pairs in batches:
        waiting.append(pairs)
        num_waiting += len(pairs[0])
        if num_waiting > MOST_LISTED:
            waiting = [_distinct(waiting)]
            num_waiting = len(waiting[0][0])
            if num_waiting > MOST_LISTED // 2:
                yield waiting.pop()
                num_waiting = 0
    if waiting:
        yield _distinct(waiting)


def _distinct(batches: list[Pairs]) -> Pairs:
    """Each pair once, by its first row and then by its second."""
    left_P, right_P = (
        (np.concatenate(parts) for parts in zip(*batches, strict=True))
        if batches
        else 2 * (np.empty(0, np.int64),)
    )
    both_P = np.unique(left_P << 32 | right_P)
    return both_P >> 32, both_P & 0xFFFF_FFFF
