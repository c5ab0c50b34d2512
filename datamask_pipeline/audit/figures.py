"""Compares stored figures with figures computed again, within stated tolerances. Knows no meaning of a column.

Shape suffixes are those of the caller.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.audit.findings import Finding, contradiction

#: How far a figure may be off on another processor: on the objective's scale, where 0 is random and 1 the best of each
#: term alone; of marginals, as a share of the largest.
TOLERANCE: Final = 1e-4
#: How far the scale's own two ends may be, as a share of their distance: one comes from a search on a sample.
SCALE_TOLERANCE: Final = 1e-2
#: Sums in float64, whatever the processor.
EXACT: Final = 1e-9


def differing(
    file: str,
    name: str,
    have: NDArray[Any],
    want: NDArray[Any],
    room: float,
    rows: NDArray[np.int64] | None = None,
) -> Iterator[Finding]:
    """The first row in which a column differs from what it should be; null stands for NaN."""
    have, want = have.astype(np.float64), want.astype(np.float64)
    same = (np.abs(have - want) <= room) | (np.isnan(have) & np.isnan(want)) | (have == want)
    if not same.all():
        place = int(np.argmin(same))
        row = place if rows is None else int(rows[place])
        count = int((~same).sum())
        problem = (
            f"`{name}` is {have[place]:.9g} where its inputs give {want[place]:.9g}; {count} rows differ"
        )
        yield contradiction(file, problem, row)


def first(rows: NDArray[np.int64], where: NDArray[np.bool_]) -> int:
    return int(rows[np.argmax(where)])


def near(have: float | None, want: float, room: float) -> bool:
    if have is None or np.isnan(have) or np.isnan(want):
        return (have is None or bool(np.isnan(have))) and bool(np.isnan(want))
    return bool(abs(have - want) <= room * max(1.0, abs(want)) or have == want)
