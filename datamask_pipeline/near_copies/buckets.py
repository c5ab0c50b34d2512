"""Pairs of vectors that share a key in one band and have near sketches. Knows signatures; no vector and no cosine.

Whoever asks does so under several keys of a band; held vectors have one each, and are read in their order.

Shape suffixes: Q vectors that ask, H held, h of them, n of a batch, L bands, S planes of a sketch, P pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.near_copies.signatures import BAND_BITS, Keys, apart

MOST_PAIRS = 2**20
"""Pairs told apart at a time; memory holds about 400 bytes for each."""
Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Held:
    """Held vectors, each of which stands for itself: arrays, or maps of files.

    Attributes:
        bands_LH: uint32; their keys, a band a row.
        sketches_HS: int8; their sketches.
        rows_H: int64; their rows among all vectors, ascending.
    """

    bands_LH: NDArray[np.uint32]
    sketches_HS: NDArray[np.int8]
    rows_H: NDArray[np.int64]

    @classmethod
    def of(cls, keys: Keys, rows_H: NDArray[np.int64]) -> Self:
        """Vectors whose signatures are at hand."""
        return cls(keys.bands_LN, keys.sketches_NS, rows_H)


def pairs_between(keys: Keys, held: Sequence[Held], most_apart: int) -> Iterator[Pairs]:
    """Places that ask beside the rows of held vectors that may be near, a batch at a time; a pair may come again."""
    for band in range(len(keys.bands_LN)):
        asking = _Asking.of(keys.asked(band))
        for part in held:
            for asked_P, held_P in asking.pairs(part.bands_LH[band]):
                alike_P = apart(keys.sketches_NS, asked_P, part.sketches_HS, held_P) <= most_apart
                if alike_P.any():
                    yield asked_P[alike_P], part.rows_H[held_P[alike_P]]


def pairs_within(keys: Keys, most_apart: int) -> Iterator[Pairs]:
    """Places beside earlier ones that may be near, a batch at a time; a pair may come again."""
    for band, keys_Q in enumerate(keys.bands_LN):
        asking = _Asking.of(keys.asked(band))
        for asked_P, held_P in asking.pairs(keys_Q):
            earlier_P = held_P < asked_P
            asked_P, held_P = asked_P[earlier_P], held_P[earlier_P]
            alike_P = apart(keys.sketches_NS, asked_P, keys.sketches_NS, held_P) <= most_apart
            if alike_P.any():
                yield asked_P[alike_P], held_P[alike_P]


@dataclass(frozen=True)
class _Asking:
    """Who asks under which keys of a band; A questions, K distinct keys, W words with a bit for every possible key.

    Attributes:
        places_A: uint32; who asks, by rising key.
        there_W: uint64; bit 1 where somebody asks under the key.
        before_W: int32; how many of the distinct keys belong to earlier words.
        edges_K: int64; the first question under each distinct key, and at last the end.
    """

    places_A: NDArray[np.uint32]
    there_W: NDArray[np.uint64]
    before_W: NDArray[np.int32]
    edges_K: NDArray[np.int64]

    @classmethod
    def of(cls, asked: list[NDArray[np.uint32]]) -> Self:
        """Of the keys of everybody, once for each choice of keys."""
        places_Q = np.arange(len(asked[0]), dtype=np.uint64)
        sorted_A = np.sort(
            np.concatenate([keys_Q.astype(np.uint64) << np.uint64(32) | places_Q for keys_Q in asked])
        )
        rising_A = (sorted_A >> np.uint64(32)).astype(np.uint32)
        is_next_A = np.diff(rising_A, prepend=rising_A[:1] + np.uint32(1)) != 0
        there = np.zeros(1 << BAND_BITS, bool)
        there[rising_A] = True
        there_W = np.packbits(there, bitorder="little").view("<u8")
        before_W = np.zeros(len(there_W), np.int32)
        np.cumsum(np.bitwise_count(there_W[:-1]), out=before_W[1:])
        edges_K = np.append(np.flatnonzero(is_next_A), len(rising_A))
        return cls(sorted_A.astype(np.uint32), there_W, before_W, edges_K)

    def pairs(self, keys_H: NDArray[np.uint32]) -> Iterator[Pairs]:
        """Who asks under the keys of these, beside the place of the key, a batch at a time."""
        hits_h, first_h, count_h = self._found(keys_H)
        ends_h = np.cumsum(count_h, dtype=np.int64)
        start, done, total = 0, 0, int(ends_h[-1]) if len(ends_h) else 0
        while done < total:
            stop = max(start + 1, int(np.searchsorted(ends_h, done + MOST_PAIRS, side="right")))
            here = slice(start, stop)
            count_n = count_h[here]
            shift_n = first_h[here] - (ends_h[here] - count_n - done)
            start, size, done = stop, int(ends_h[stop - 1]) - done, int(ends_h[stop - 1])
            questions_P = np.repeat(shift_n, count_n) + np.arange(size)
            yield self.places_A[questions_P].astype(np.int64), np.repeat(hits_h[here], count_n)

    def _found(
        self, keys_H: NDArray[np.uint32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Under which of these keys somebody asks; of those, the first question and the number of questions."""
        there = self.there_W.view(np.uint8)
        there_H = there[keys_H >> np.uint32(3)] >> (keys_H & np.uint32(7)).astype(np.uint8) & np.uint8(1)
        hits_h = np.flatnonzero(there_H.view(bool))
        keys_h = keys_H[hits_h]
        words_h, bits_h = keys_h >> np.uint32(6), (keys_h & np.uint32(63)).astype(np.uint64)
        lower_h = np.bitwise_count(self.there_W[words_h] & ((np.uint64(1) << bits_h) - np.uint64(1)))
        number_h = self.before_W[words_h] + lower_h
        first_h = self.edges_K[number_h]
        return hits_h, first_h, self.edges_K[number_h + 1] - first_h
