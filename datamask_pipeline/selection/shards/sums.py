"""Sums of floats that depend on no order: whole numbers, which add up exactly. Knows no document and no process.

Shape suffixes: U sums that are added up, L limbs, G groups.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

LIMB_BITS = 32
LOWEST = 1126
"""Limb 0 counts in units of ``2**-LOWEST``: below the last bit of the smallest float64."""
NUM_LIMBS = 68
FRACTION_BITS = 40
"""Of a value in [0, 1] that is summed by group; it is kept in two halves of `HALF_BITS`."""
HALF_BITS = 20


def limbs_of(values_U: NDArray[np.float64]) -> NDArray[np.int64]:
    """The exact sum of finite floats, as int64 limbs of shape (L,) that add up over processes in any order."""
    fractions_U, exponents_U = np.frexp(values_U)
    whole_U = np.abs(np.ldexp(fractions_U, 53)).astype(np.int64)
    sign_U = np.sign(values_U).astype(np.int64)
    place_U = np.maximum(exponents_U.astype(np.int64) - 53 + LOWEST, 0)
    limb_U, shift_U = place_U >> 5, place_U & 31
    mask = (1 << LIMB_BITS) - 1
    low_U, high_U = (whole_U & mask) << shift_U, (whole_U >> LIMB_BITS) << shift_U
    limbs_L = np.zeros(NUM_LIMBS, np.int64)
    np.add.at(limbs_L, limb_U, sign_U * (low_U & mask))
    np.add.at(limbs_L, limb_U + 1, sign_U * ((low_U >> LIMB_BITS) + (high_U & mask)))
    np.add.at(limbs_L, limb_U + 2, sign_U * (high_U >> LIMB_BITS))
    return limbs_L


def number_of(limbs_L: NDArray[np.int64]) -> float:
    """The float64 next to the sum."""
    total = sum(int(limb) << (LIMB_BITS * place) for place, limb in enumerate(limbs_L))
    return float(Fraction(total, 1 << LOWEST))


def scale_bits(num_rows: int) -> int:
    """Bits behind the point with which sums of as many numbers in [-1, 1] stay below 2**62."""
    return 61 - num_rows.bit_length()


def group_sums(
    values_N: NDArray[np.float64], groups_N: NDArray[np.int32], num_groups: int
) -> NDArray[np.int64]:
    """Sums by group of values in [0, 1], each to `FRACTION_BITS`: int64 of shape (2, G), high and low halves."""
    fixed_N = np.rint(values_N * float(1 << FRACTION_BITS)).astype(np.int64)
    mask = (1 << HALF_BITS) - 1
    if num_groups == 1 and len(fixed_N) < 1 << (62 - FRACTION_BITS):
        total = fixed_N.sum()
        return np.array([[total >> HALF_BITS], [total & mask]], np.int64)
    halves = (fixed_N >> HALF_BITS, fixed_N & mask)
    # bincount adds float64: whole numbers below 2**53, and so exact.
    sums = [np.bincount(groups_N, weights=half_N, minlength=num_groups) for half_N in halves]
    return np.stack(sums).astype(np.int64)


def group_numbers(halves_2G: NDArray[np.int64]) -> NDArray[np.float64]:
    """The sums themselves, float64 of shape (G,)."""
    wholes = [(int(high) << HALF_BITS) + int(low) for high, low in halves_2G.T]
    return np.array([float(Fraction(whole, 1 << FRACTION_BITS)) for whole in wholes])
