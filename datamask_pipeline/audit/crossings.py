"""Where a document would change sides of a threshold, if every document's standing moves along a line. Arrays only.

Shape suffixes: n documents that compete for the same places, e events.
"""

import numpy as np
from numpy.typing import NDArray


def ahead_of(
    standing_n: NDArray[np.float64], place: int, lot_n: NDArray[np.float64] | None = None
) -> NDArray[np.bool_]:
    """Which documents stand before one: the higher, and of equal ones those with the higher lot; without lots none."""
    ahead_n: NDArray[np.bool_] = standing_n > standing_n[place]
    if lot_n is not None:
        ahead_n |= (standing_n == standing_n[place]) & (lot_n > lot_n[place])
    return ahead_n


def nearest_crossing(
    standing_n: NDArray[np.float64],
    slope_n: NDArray[np.float64],
    place: int,
    count: int,
    lot_n: NDArray[np.float64] | None = None,
) -> float | None:
    """How far to go until a document changes sides: in where fewer than `count` others stand before it.

    Args:
        standing_n: Every document's standing here.
        slope_n: How it changes with each step ahead.
        place: The document.
        count: Places there are.
        lot_n: What decides between equal documents, the higher first; without it equal ones are not before each other.

    Returns:
        The distance, 0 or more, beyond which it is on the other side; none where it never changes.
    """
    above_n, faster_n = standing_n - standing_n[place], slope_n - slope_n[place]
    ahead_n = ahead_of(standing_n, place, lot_n)
    moving_n = np.where(ahead_n, faster_n < 0, faster_n > 0)
    distance_e = -above_n[moving_n] / faster_n[moving_n]
    # One that leaves makes room, one that comes takes a place.
    change_e = np.where(ahead_n[moving_n], -1, 1)
    order_e = np.argsort(distance_e, kind="stable")
    distance_e, before_e = distance_e[order_e], int(ahead_n.sum()) + np.cumsum(change_e[order_e])
    is_last_e = np.append(distance_e[1:] != distance_e[:-1], True)[: len(distance_e)]
    was_in = int(ahead_n.sum()) < count
    changed = np.flatnonzero(is_last_e & ((before_e < count) != was_in))
    return float(distance_e[changed[0]]) if len(changed) else None
