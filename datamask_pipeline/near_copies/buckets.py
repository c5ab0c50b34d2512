"""Pairs of vectors that share a key in one band and have near sketches. Knows signatures; no vector and no cosine.

Shape suffixes: Q vectors asked for, q of them, H held, L bands, S planes of a sketch, P pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.near_copies.signatures import BAND_BITS, Keys, apart

MOST_PAIRS = 2**20
"""Pairs told apart at a time; memory holds about 400 bytes for each."""
Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Buckets:
    """Held vectors by their keys.

    Attributes:
        bands_HL: uint32; their keys.
        sketches_HS: int8; their sketches.
    """

    bands_HL: NDArray[np.uint32]
    sketches_HS: NDArray[np.int8]


def pairs_between(keys: Keys, buckets: Buckets, most_apart: int) -> Iterator[Pairs]:
    """Rows that ask beside held rows that may be their near-copies, a batch at a time; a pair may come again."""
    return _pairs(keys, buckets, most_apart, within=False)


def pairs_within(keys: Keys, most_apart: int) -> Iterator[Pairs]:
    """Rows beside earlier ones that may be their near-copies, a batch at a time; a pair may come again."""
    return _pairs(keys, Buckets(keys.bands_NL, keys.sketches_NS), most_apart, within=True)


def _pairs(keys: Keys, buckets: Buckets, most_apart: int, *, within: bool) -> Iterator[Pairs]:
    for band in range(keys.bands_NL.shape[1]):
        places = _Places.of(buckets.bands_HL[:, band])
        for asked_Q in keys.asked(band):
            hits_q, first_q, count_q = places.found(asked_Q)
            for places_P, held_P in _listed(first_q, count_q, places.rows_H):
                asked_P = hits_q[places_P]
                if within:
                    earlier_P = held_P < asked_P
                    asked_P, held_P = asked_P[earlier_P], held_P[earlier_P]
                alike_P = apart(keys.sketches_NS, asked_P, buckets.sketches_HS, held_P) <= most_apart
                if alike_P.any():
                    yield asked_P[alike_P], held_P[alike_P]


@dataclass(frozen=True)
class _Places:
    """Rows in order of their keys, and where each key stands; K distinct keys, W words with a bit for every possible key.

    Attributes:
        rows_H: int64; rows by rising key, those of one key ascending.
        there_W: uint64; bit 1 where a row has the key.
        before_W: int32; how many of the distinct keys belong to earlier words.
        edges_K: int64; the first place of each distinct key, and at last the end.
    """

    rows_H: NDArray[np.int64]
    there_W: NDArray[np.uint64]
    before_W: NDArray[np.int32]
    edges_K: NDArray[np.int64]

    @classmethod
    def of(cls, keys_H: NDArray[np.uint32]) -> Self:
        """Of each row its key."""
        sorted_H = np.sort(
            keys_H.astype(np.uint64) << np.uint64(32) | np.arange(len(keys_H), dtype=np.uint64)
        )
        rising_H = (sorted_H >> np.uint64(32)).astype(np.uint32)
        is_next_H = np.diff(rising_H, prepend=rising_H[:1] + np.uint32(1)) != 0
        there = np.zeros(1 << BAND_BITS, bool)
        there[rising_H] = True
        there_W = np.packbits(there, bitorder="little").view("<u8")
        before_W = np.zeros(len(there_W), np.int32)
        np.cumsum(np.bitwise_count(there_W[:-1]), out=before_W[1:])
        rows_H = (sorted_H & np.uint64(0xFFFF_FFFF)).astype(np.int64)
        return cls(rows_H, there_W, before_W, np.append(np.flatnonzero(is_next_H), len(rising_H)))

    def found(
        self, keys_Q: NDArray[np.uint32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Which of these keys a row has; of those, the first place and the number of places."""
        there = self.there_W.view(np.uint8)
        there_Q = there[keys_Q >> np.uint32(3)] >> (keys_Q & np.uint32(7)).astype(np.uint8) & np.uint8(1)
        hits_q = np.flatnonzero(there_Q.view(bool))
        keys_q = keys_Q[hits_q]
        words_q, bits_q = keys_q >> np.uint32(6), (keys_q & np.uint32(63)).astype(np.uint64)
        lower_q = np.bitwise_count(self.there_W[words_q] & ((np.uint64(1) << bits_q) - np.uint64(1)))
        number_q = self.before_W[words_q] + lower_q
        first_q = self.edges_K[number_q]
        return hits_q, first_q, self.edges_K[number_q + 1] - first_q


def _listed(
    first_Q: NDArray[np.int64], count_Q: NDArray[np.int64], rows_H: NDArray[np.int64]
) -> Iterator[Pairs]:
    """Each row that asks beside those at `count_Q` consecutive places from `first_Q` on."""
    ends_Q = np.cumsum(count_Q, dtype=np.int64)
    start, total = 0, int(ends_Q[-1]) if len(ends_Q) else 0
    done = 0
    while done < total:
        stop = max(start + 1, int(np.searchsorted(ends_Q, done + MOST_PAIRS, side="right")))
        count_q = count_Q[start:stop]
        asked_P = np.repeat(np.arange(start, stop), count_q)
        shift_q = first_Q[start:stop] - (ends_Q[start:stop] - count_q - done)
        held_P = rows_H[np.repeat(shift_q, count_q) + np.arange(len(asked_P))]
        yield asked_P, held_P
        start, done = stop, int(ends_Q[stop - 1])
