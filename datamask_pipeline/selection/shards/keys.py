"""Floats as whole numbers in the same order, and lots by row number. Knows no document and no process.

Shape suffixes: N documents.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]
_SIGN = np.uint64(1 << 63)


def key_of(values_N: NDArray[np.float64]) -> Keys:
    """uint64 numbers in the order of finite floats; equal floats have equal ones, plus and minus zero among them."""
    bits_N = (values_N + 0.0).view(np.uint64)
    return np.where(bits_N >= _SIGN, ~bits_N, bits_N | _SIGN)


def value_of(keys_N: Keys) -> NDArray[np.float64]:
    """The floats that `key_of` was given."""
    bits_N = np.where(keys_N >= _SIGN, keys_N ^ _SIGN, ~keys_N)
    return bits_N.view(np.float64)


def salt(seed: int, *stream: str | int) -> int:
    """What makes the lots of one named stream its own."""
    name = "/".join(str(part) for part in (seed, *stream))
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def lots(numbers_N: NDArray[np.int64], salted: int) -> Keys:
    """A lot for each global row number: uint64, no two alike, whatever process asks.

    Source: the finaliser of SplitMix64 (Steele, Lea and Flood 2014), which is one to one.
    """
    mixed_N = (numbers_N.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salted)
    mixed_N = (mixed_N ^ (mixed_N >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed_N = (mixed_N ^ (mixed_N >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed_N ^ (mixed_N >> np.uint64(31))


def shares(lots_N: Keys) -> NDArray[np.float64]:
    """The lots as float64 between 0 and 1, both left out."""
    return ((lots_N >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
