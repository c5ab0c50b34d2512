"""What counts as a vector of unit norm. Knows no file, model or metric."""

from typing import Any, Final

#: How far from 1 a stored unit vector's norm may lie. Rounding its numbers to float16 moves the norm by less than 2**-11.
UNIT_TOLERANCE: Final = 1e-3


def are_unit(norms_N: Any, tolerance: float = UNIT_TOLERANCE) -> Any:
    """Which norms, of what is stored, count as 1: booleans of an array or tensor; NaN does not."""
    return abs(norms_N - 1) <= tolerance
