"""How many documents a share of them is, and back. Knows numbers alone."""

import math


def documents_of(ratio: float, num_rows: int) -> int:
    """The documents that a ratio of so many selects: the nearest whole number, of two the even one."""
    return round(ratio * num_rows)


def least_ratio(num_documents: int, num_rows: int) -> float:
    """The least ratio that selects so many of ``num_rows`` documents; every one below it selects fewer.

    Args:
        num_documents: One or more.
        num_rows: One or more.
    """
    ratio = (num_documents - 0.5) / num_rows  # but for a tie and the last bits
    while documents_of(ratio, num_rows) < num_documents:
        ratio = math.nextafter(ratio, math.inf)
    while documents_of(below := math.nextafter(ratio, 0.0), num_rows) >= num_documents:
        ratio = below
    return ratio
