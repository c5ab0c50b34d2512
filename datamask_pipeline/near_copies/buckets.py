"""Pairs of vectors that share a key in one band and have near sketches. Knows signatures; no vector and no cosine.

Shape suffixes: Q vectors asked for, q of them, H held, L bands, S planes of a sketch, P pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.near_copies.signatures import BAND_BITS, Keys, apart

MOST_PAIRS = 2**20
"""Pairs told apart at a time; memory holds about 400 bytes for each."""
SPARE_BITS = 4
"""So many more bits of a key than it takes to number the held ones tell most keys that are not held."""
Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Buckets:
    """Held vectors by their keys.

    Attributes:
        bands_HL: uint32; their keys.
        order_LH: uint32; rows by rising key in each band, those of one key ascending.
        sketches_HS: int8; their sketches.
    """

    bands_HL: NDArray[np.uint32]
    order_LH: NDArray[np.uint32]
    sketches_HS: NDArray[np.int8]


def order_of(bands_HL: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The order of rows in every band, shape (L, H)."""
    order_LH = np.empty(bands_HL.shape[::-1], np.uint32)
    rows_H = np.arange(len(bands_HL), dtype=np.uint64)
    for band in range(bands_HL.shape[1]):
        sorted_H = np.sort(bands_HL[:, band].astype(np.uint64) << np.uint64(32) | rows_H)
        order_LH[band] = sorted_H.astype(np.uint32)  # the lower half is the row
    return order_LH


def pairs_between(keys: Keys, buckets: Buckets, most_apart: int) -> Iterator[Pairs]:
    """Rows that ask beside held rows that may be their near-copies, a batch at a time; a pair may come again."""
    return _pairs(keys, buckets, most_apart, within=False)


def pairs_within(keys: Keys, most_apart: int) -> Iterator[Pairs]:
    """Rows beside earlier ones that may be their near-copies, a batch at a time; a pair may come again."""
    return _pairs(
        keys, Buckets(keys.bands_NL, order_of(keys.bands_NL), keys.sketches_NS), most_apart, within=True
    )


def _pairs(keys: Keys, buckets: Buckets, most_apart: int, *, within: bool) -> Iterator[Pairs]:
    # Buckets are found by as many leading bits of a key as leave few rows with another key among those listed.
    size = len(buckets.bands_HL).bit_length()
    shift, bits = np.uint32(max(0, BAND_BITS - size)), min(BAND_BITS, size + SPARE_BITS)
    for band in range(keys.bands_NL.shape[1]):
        held_H, order_H = np.ascontiguousarray(buckets.bands_HL[:, band]), buckets.order_LH[band]
        edges = np.zeros((1 << (BAND_BITS - int(shift))) + 1, np.int32)
        np.cumsum(np.bincount(held_H >> shift, minlength=len(edges) - 1), out=edges[1:])
        there = _beginnings(held_H, bits)
        for asked_Q in keys.asked(band):
            hits_q = np.flatnonzero(_may_be_held(there, bits, asked_Q))
            asked_q = asked_Q[hits_q]
            first_q = edges[asked_q >> shift]
            for places_P, held_P in _listed(first_q, edges[1:][asked_q >> shift] - first_q, order_H):
                meet_P = held_H[held_P] == asked_q[places_P]
                asked_P, held_P = hits_q[places_P[meet_P]], held_P[meet_P]
                if within:
                    earlier_P = held_P < asked_P
                    asked_P, held_P = asked_P[earlier_P], held_P[earlier_P]
                alike_P = apart(keys.sketches_NS, asked_P, buckets.sketches_HS, held_P) <= most_apart
                if alike_P.any():
                    yield asked_P[alike_P], held_P[alike_P]


def _beginnings(keys_H: NDArray[np.uint32], bits: int) -> NDArray[np.uint8]:
    """A bit for each beginning of that many bits: 1 where a key has it. Small enough for the processor's cache."""
    there = np.zeros(1 << bits, bool)
    there[keys_H >> np.uint32(BAND_BITS - bits)] = True
    return np.packbits(there, bitorder="little")


def _may_be_held(there: NDArray[np.uint8], bits: int, keys_Q: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Of each key, whether one that is held begins like it: few do, and only these are looked up."""
    first_Q = keys_Q >> np.uint32(BAND_BITS - bits)
    return there[first_Q >> np.uint32(3)] >> (first_Q & np.uint32(7)).astype(np.uint8) & np.uint8(1)


def _listed(
    first_Q: NDArray[np.int32], count_Q: NDArray[np.int32], order_H: NDArray[np.integer]
) -> Iterator[Pairs]:
    """Each row beside those at `count_Q` consecutive places of the order from `first_Q` on."""
    ends_Q = np.cumsum(count_Q, dtype=np.int64)
    start, total = 0, int(ends_Q[-1]) if len(ends_Q) else 0
    done = 0
    while done < total:
        stop = max(start + 1, int(np.searchsorted(ends_Q, done + MOST_PAIRS, side="right")))
        count_q = count_Q[start:stop]
        asked_P = np.repeat(np.arange(start, stop), count_q)
        shift_q = first_Q[start:stop] - (ends_Q[start:stop] - count_q - done)
        held_P = order_H[np.repeat(shift_q, count_q) + np.arange(len(asked_P))].astype(np.int64)
        yield asked_P, held_P
        start, done = stop, int(ends_Q[stop - 1])
