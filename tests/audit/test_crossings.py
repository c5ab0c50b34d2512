"""The nearest crossing is where a document's side really changes first, by trying every stretch between crossings."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from datamask_pipeline.audit.crossings import ahead_of, nearest_crossing

NUMBERS = st.integers(-4, 4).map(float)


@given(
    lines=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=9),
    place=st.integers(0, 8),
    count=st.integers(0, 9),
    with_lots=st.booleans(),
)
def test_it_is_the_first_place_where_the_side_changes(
    lines: list[tuple[float, float]], place: int, count: int, with_lots: bool
) -> None:
    standing_n, slope_n = np.array(lines).T
    place = min(place, len(lines) - 1)
    lot_n = np.random.default_rng(0).random(len(lines)) if with_lots else None
    found = nearest_crossing(standing_n, slope_n, place, count, lot_n)

    def is_in(distance: float) -> bool:
        return int(ahead_of(standing_n + distance * slope_n, place, lot_n).sum()) < count

    with np.errstate(divide="ignore", invalid="ignore"):
        meetings = (standing_n - standing_n[place]) / (slope_n[place] - slope_n)
    ends = sorted({0.0, *meetings[np.isfinite(meetings) & (meetings >= 0)].tolist()})
    stretches = [(low, (low + high) / 2) for low, high in zip(ends, [*ends[1:], ends[-1] + 2], strict=True)]
    expected = next((low for low, inside in stretches if is_in(inside) != is_in(0.0)), None)
    assert found == expected
