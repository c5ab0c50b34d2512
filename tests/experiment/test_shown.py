"""How differences are drawn: one without an interval is told from one with a narrow one."""

import math

import pytest
from matplotlib.figure import Figure

from datamask_pipeline.experiment.judge import Difference
from datamask_pipeline.experiment.shown import draw_differences, told_hollow

KNOWN, BARE = Difference(0.1, 0.02, 0.03, 0.01), Difference(0.2, math.nan, math.nan, math.nan)


@pytest.mark.parametrize("upright", [False, True])
def test_a_difference_without_interval_is_hollow_and_has_no_bar(upright: bool) -> None:
    axes = Figure().subplots()
    draw_differences(axes, [1.0, 2.0], [KNOWN, BARE], upright=upright, fmt="o", markersize=4, capsize=2)
    (hollow,) = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    point = (2.0, 0.2) if upright else (0.2, 2.0)
    assert (*hollow.get_xdata(), *hollow.get_ydata()) == point
    (bars,) = axes.collections
    known, bare = bars.get_segments()
    along = 1 if upright else 0
    assert known[:, along].tolist() == pytest.approx([0.08, 0.12])
    assert not len(bare) or math.isnan(bare[0, along])
    assert told_hollow([KNOWN, BARE])
    assert not told_hollow([KNOWN])
