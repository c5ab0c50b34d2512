"""Plots show all that they are given, inside the picture and beside the legend."""

import base64
import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from datamask_pipeline.report.plots import (
    differences_figure,
    learning_curve_figure,
    loss_curve_figure,
    objectives_figure,
    sparkline,
)

TASKS = ("arc_challenge", "hellaswag", "kqapro", "mmlu", "nq_open", "openbookqa", "piqa", "race_high")


def differences(arms: int, architectures: tuple[str, ...], half_width: float = 0.1) -> list[dict[str, Any]]:
    product = itertools.product(range(arms), architectures, enumerate(TASKS))
    return [
        {
            "arm": f"an_arm_with_quite_a_long_name_{arm}",
            "architecture": architecture,
            "task": task,
            "difference": 0.01 * arm + 0.1 * place,
            "half_width": half_width,
            "interval": "questions",
        }
        for arm, architecture, (place, task) in product
    ]


def learning_curve(blocks: int) -> pa.Table:
    rows = itertools.product(range(blocks), range(20))
    return pa.Table.from_pylist(
        [
            {"step": step, "objective": step / 20, "bound": 1.0 - step / 100, "block": block}
            for block, step in rows
        ]
    )


def figures() -> Iterator[Any]:
    yield pytest.param(
        lambda: differences_figure(differences(1, ("dense",)), baseline="random"), id="one arm"
    )
    yield pytest.param(
        lambda: differences_figure(differences(9, ("dense", "moe")), baseline="quality_topk_of_everything"),
        id="many",
    )
    yield pytest.param(lambda: learning_curve_figure(learning_curve(1)), id="one block")
    yield pytest.param(lambda: learning_curve_figure(learning_curve(12)), id="many blocks")
    yield pytest.param(
        lambda: loss_curve_figure([{"tokens": 1_000_000 * n, "loss": 9.0 - n / 10} for n in range(1, 50)]),
        id="loss",
    )


def labels_out_of_sight(axes: Axes) -> list[Text]:
    """Labels of ticks beyond the axes' limits, which are not drawn."""
    found = []
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        found += [
            label
            for tick, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=False)
            if not low <= tick <= high
        ]
    return found


@pytest.mark.parametrize("build", list(figures()))
def test_no_text_is_clipped_and_no_legend_covers_data(build: Any) -> None:
    figure: Figure = build()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    unseen = {id(label) for axes in figure.axes for label in labels_out_of_sight(axes)}
    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible() and id(text) not in unseen:
            box = text.get_window_extent(renderer)
            assert box.x0 >= -1, text
            assert box.y0 >= -1, text
            assert box.x1 <= figure.bbox.x1 + 1, text
            assert box.y1 <= figure.bbox.y1 + 1, text
    for axes in figure.axes:
        assert axes.get_legend() is None
        for legend in figure.legends:
            assert not legend.get_window_extent(renderer).overlaps(axes.get_window_extent(renderer))


def test_every_architecture_has_its_panel() -> None:
    rows = differences(2, ("dense", "moe"))
    for row in rows:
        row["difference"] = 0.5 if row["architecture"] == "dense" else -0.5
    panels = differences_figure(rows, baseline="random").axes
    assert [panel.get_title() for panel in panels] == ["dense", "moe"]
    for panel, expected in zip(panels, (0.5, -0.5), strict=True):
        drawn = [x for container in panel.containers for x in container.lines[0].get_xdata()]
        assert drawn == [expected] * 2 * len(TASKS)


def test_arms_stand_as_the_tables_have_them() -> None:
    arms = [f"arm_{number}" for number in range(12)]
    rows = [row | {"arm": arm} for arm in arms for row in differences(1, ("dense",))]
    figure = differences_figure(rows, baseline="random", order=["random", *arms])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == arms
    places = [container.lines[0].get_ydata()[0] for container in figure.axes[0].containers]
    assert places == sorted(places)


def test_arms_are_told_apart_without_colour_and_by_both_where_there_are_many() -> None:
    figure = differences_figure(differences(12, ("dense",)), baseline="random")
    drawn = [container.lines[0] for container in figure.axes[0].containers]
    shapes = [line.get_marker() for line in drawn]
    assert len(set(shapes[:7])) == 7
    assert len({*zip(shapes, [line.get_color() for line in drawn], strict=True)}) == len(shapes)


def test_a_difference_without_an_interval_has_no_bar() -> None:
    (panel,) = differences_figure(differences(1, ("dense",), math.nan), baseline="random").axes
    (container,) = panel.containers
    assert not container.has_xerr


@pytest.mark.parametrize("number", [0, 1, 2, 39, 40, 41, 5000])
def test_a_sparkline_fits_into_a_pages_text(number: int) -> None:
    generator = random.Random(number)
    values = [generator.gauss(0, 1) for _ in range(number)]  # the longest line there can be
    assert len(base64.b64encode(sparkline(values))) < 950
    if number > 2:
        assert sparkline(values) != sparkline(sorted(values))


def test_steps_are_whole_numbers() -> None:
    curve = pa.table({"step": [0, 1, 3], "objective": [0.50, 0.51, 0.52], "block": [0, 0, 0]})
    for figure in (learning_curve_figure(curve), objectives_figure({"datamask": curve})):
        assert all(float(tick).is_integer() for tick in figure.axes[0].get_xticks())


def test_a_course_of_one_point_is_seen() -> None:
    curve = pa.table({"step": [0, 0], "objective": [0.5, 0.6], "bound": [0.7, 0.8], "block": [0, 1]})
    loss = loss_curve_figure([{"tokens": 1_000, "loss": 7.0}])
    for figure in (learning_curve_figure(curve), objectives_figure({"random": curve.slice(1)}), loss):
        assert figure.axes[0].lines
        assert all(line.get_marker() != "None" for line in figure.axes[0].lines)
