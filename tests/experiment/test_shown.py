"""How differences are drawn: one without an interval is told from one with a narrow one."""

import math
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.figure import Figure

from datamask_pipeline.experiment import report_curve
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


def curve_of(monkeypatch: pytest.MonkeyPatch, arms: Sequence[str], tokens: Sequence[int]) -> Any:
    """What the plot along the training draws: its only panel."""
    points = [SimpleNamespace(tokens=seen, against_baseline=dict.fromkeys(arms, KNOWN)) for seen in tokens]
    config: Any = SimpleNamespace(arms=dict.fromkeys(["random", *arms]), baseline="random")
    verdict: Any = SimpleNamespace(curve=points, has_power=True)
    drawn: list[Figure] = []
    monkeypatch.setattr(report_curve, "png", drawn.append)
    report_curve.plot_of_curve(config, {"whole": verdict})
    return drawn[0].axes[0]


def test_arms_along_the_training_differ_in_shape_and_many_in_both(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = curve_of(monkeypatch, [f"arm_{number}" for number in range(12)], [1_000, 2_000, 3_000])
    drawn = [container.lines[0] for container in axes.containers]
    shapes = [line.get_marker() for line in drawn]
    assert len(set(shapes[:7])) == 7
    assert len({*zip(shapes, [line.get_color() for line in drawn], strict=True)}) == len(shapes)


def test_points_along_the_training_stay_at_their_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = [1_000 * number for number in range(1, 11)]
    axes = curve_of(monkeypatch, [f"arm_{number}" for number in range(12)], tokens)
    places = [container.lines[0].get_xdata() for container in axes.containers]
    for first, following in pairwise(range(len(tokens))):
        assert max(of[first] for of in places) < min(of[following] for of in places)
    assert len({of[0] for of in places}) == len(places)
