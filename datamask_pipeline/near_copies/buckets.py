"""Pairs of vectors that share a key in one band and have near sketches. Knows signatures; no vector and no cosine.

Whoever asks does so under several keys of a band; held vectors have one each. They are read in their order, past a bit for
every key that is asked for; only those that pass are put in order.

Shape suffixes: Q vectors that ask, q of them, H held, h of them, n of a batch, L bands, S planes of a sketch, P pairs.
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
MOST_HITS = 2**19
"""Held vectors put in order at a time; memory holds about 100 bytes for each."""
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
        asked = keys.asked(band)
        for part in _asked_for(_there(asked), held, band):
            for asked_P, held_P in _Table.of(part.bands_LH[0]).pairs(asked):
                alike_P = apart(keys.sketches_NS, asked_P, part.sketches_HS, held_P) <= most_apart
                if alike_P.any():
                    yield asked_P[alike_P], part.rows_H[held_P[alike_P]]


def pairs_within(keys: Keys, most_apart: int) -> Iterator[Pairs]:
    """Places beside earlier ones that may be near, a batch at a time; a pair may come again."""
    for band, keys_Q in enumerate(keys.bands_LN):
        for asked_P, held_P in _Table.of(keys_Q).pairs(keys.asked(band)):
            earlier_P = held_P < asked_P
            asked_P, held_P = asked_P[earlier_P], held_P[earlier_P]
            alike_P = apart(keys.sketches_NS, asked_P, keys.sketches_NS, held_P) <= most_apart
            if alike_P.any():
                yield asked_P[alike_P], held_P[alike_P]


def _asked_for(there_B: NDArray[np.uint8], held: Sequence[Held], band: int) -> Iterator[Held]:
    """Those of the held vectors under whose key of one band somebody asks, `MOST_HITS` or little more at a time."""
    waiting: list[Held] = []
    for part in held:
        keys_H = part.bands_LH[band]
        hits_h = np.flatnonzero(_is_there(there_B, keys_H))
        waiting.append(Held(keys_H[hits_h][None], part.sketches_HS[hits_h], part.rows_H[hits_h]))
        if sum(len(one.rows_H) for one in waiting) >= MOST_HITS:
            yield _joined(waiting)
            waiting = []
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[Held]) -> Held:
    return Held(
        np.concatenate([part.bands_LH for part in parts], axis=1),
        np.concatenate([part.sketches_HS for part in parts]),
        np.concatenate([part.rows_H for part in parts]),
    )


def _there(keys: Sequence[NDArray[np.uint32]]) -> NDArray[np.uint8]:
    """A bit for every possible key, 1 where it is among these: of each byte the lowest bit is the first key."""
    there = np.zeros(1 << BAND_BITS, bool)
    for keys_N in keys:
        there[keys_N] = True
    return np.packbits(there, bitorder="little")


def _is_there(there_B: NDArray[np.uint8], keys_N: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Which of these keys are among those that `there_B` was made of."""
    bits_N = there_B[keys_N >> np.uint32(3)] >> (keys_N & np.uint32(7)).astype(np.uint8) & np.uint8(1)
    return bits_N.view(bool)


@dataclass(frozen=True)
class _Table:
    """Held vectors by their key of one band; K distinct keys, B bytes and W words with a bit for every possible key.

    Attributes:
        places_H: uint32; which vectors, by rising key.
        there_B: uint8; bit 1 where a vector has the key.
        before_W: int32; how many of the distinct keys belong to earlier words.
        edges_K: int64; the first vector of each distinct key, and at last the end.
    """

    places_H: NDArray[np.uint32]
    there_B: NDArray[np.uint8]
    before_W: NDArray[np.int32]
    edges_K: NDArray[np.int64]

    @classmethod
    def of(cls, keys_H: NDArray[np.uint32]) -> Self:
        """Of the key of each."""
        sorted_H = np.sort(
            keys_H.astype(np.uint64) << np.uint64(32) | np.arange(len(keys_H), dtype=np.uint64)
        )
        rising_H = (sorted_H >> np.uint64(32)).astype(np.uint32)
        is_next_H = np.diff(rising_H, prepend=rising_H[:1] + np.uint32(1)) != 0
        there_B = _there([rising_H])
        before_W = np.zeros(len(there_B) // 8, np.int32)
        np.cumsum(np.bitwise_count(there_B.view("<u8")[:-1]), out=before_W[1:])
        edges_K = np.append(np.flatnonzero(is_next_H), len(rising_H))
        return cls(sorted_H.astype(np.uint32), there_B, before_W, edges_K)

    def pairs(self, asked: Sequence[NDArray[np.uint32]]) -> Iterator[Pairs]:
        """Who asks beside the place of each vector under the key, a batch at a time.

        Args:
            asked: Keys of everybody who asks, once for each choice of keys.
        """
        for keys_Q in asked:
            hits_q, first_q, count_q = self._found(keys_Q)
            ends_q = np.cumsum(count_q, dtype=np.int64)
            start, done, total = 0, 0, int(ends_q[-1]) if len(ends_q) else 0
            while done < total:
                stop = max(start + 1, int(np.searchsorted(ends_q, done + MOST_PAIRS, side="right")))
                here = slice(start, stop)
                count_n = count_q[here]
                shift_n = first_q[here] - (ends_q[here] - count_n - done)
                start, size, done = stop, int(ends_q[stop - 1]) - done, int(ends_q[stop - 1])
                places_P = self.places_H[np.repeat(shift_n, count_n) + np.arange(size)]
                yield np.repeat(hits_q[here], count_n), places_P.astype(np.int64)

    def _found(
        self, keys_Q: NDArray[np.uint32]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Whose of these keys a vector has; of those, the first such vector and how many there are."""
        hits_q = np.flatnonzero(_is_there(self.there_B, keys_Q))
        keys_q = keys_Q[hits_q]
        words_q, bits_q = keys_q >> np.uint32(6), (keys_q & np.uint32(63)).astype(np.uint64)
        there_W = self.there_B.view("<u8")
        lower_q = np.bitwise_count(there_W[words_q] & ((np.uint64(1) << bits_q) - np.uint64(1)))
        number_q = self.before_W[words_q] + lower_q
        first_q = self.edges_K[number_q]
        return hits_q, first_q, self.edges_K[number_q + 1] - first_q
