"""Every word of a selection's plots can be read, however many arms a release has and however long their names are."""

import itertools
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from datamask_pipeline.look import figures

LONG = [f"a_family_of_arms_whose_names_begin_alike_and_end_apart_lambda_{number}" for number in range(12)]
SHORT = ["datamask", "quality_topk", "random"]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are drawn from now on, as matplotlib's."""
    found: list[Any] = []

    def keep(figure: Any) -> str:
        found.append(figure)
        return ""

    monkeypatch.setattr(figures, "svg", keep)
    return found


def words(figure: Any) -> list[tuple[str, Any]]:
    """What a figure says, each with the place that it takes."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    found = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for axes in figure.axes:
        found += [*axes.texts, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            found += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [
        (text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in found if text.get_text()
    ]


def all_can_be_read(figure: Any) -> None:
    found = words(figure)
    for text, place in found:
        assert place.x0 >= figure.bbox.x0 - 1, f"{text} is cut on the left"
        assert place.x1 <= figure.bbox.x1 + 1, f"{text} is cut on the right"
        assert place.y0 >= figure.bbox.y0 - 1, f"{text} is cut below"
        assert place.y1 <= figure.bbox.y1 + 1, f"{text} is cut above"
    for (text, place), (other, its) in itertools.combinations(found, 2):
        assert not place.shrunk(0.9, 0.9).overlaps(its), f"{text} lies over {other}"


@pytest.mark.parametrize("names", [SHORT, LONG[:1], LONG], ids=["short", "one", "twelve"])
def test_no_word_of_a_plot_is_cut_or_lies_over_another(names: list[str], drawn: list[Any]) -> None:
    places = {name: (0.1 * number, 1 - 0.08 * number) for number, name in enumerate(names)}
    figures.plane(places, weights=(0.5, 0.5), bound=0.9, scale="0: random masks")
    figures.overlap(names, [[100.0] * len(names)] * len(names))
    figures.bars(dict.fromkeys(names, 1.25), "near-copies among the chosen (%)")
    figures.plane({names[0]: (0.0, 0.0)}, weights=(0.5, 0.5), bound=None, scale="0: random masks")
    assert len(drawn) == 4
    for figure in drawn:
        all_can_be_read(figure)


def test_names_that_end_apart_are_told_apart(drawn: list[Any]) -> None:
    figures.bars(dict.fromkeys(LONG, 1.0), "near-copies among the chosen (%)")
    labels = {text for text, _ in words(drawn[0]) if "lambda" in text}
    assert len(labels) == len(LONG)


def test_steps_are_whole_numbers(drawn: list[Any]) -> None:
    figures.learning_curve([0, 1, 3], [0.50, 0.51, 0.52], [None, 0.55, 0.54])
    words(drawn[0])
    assert all(float(tick).is_integer() for tick in drawn[0].axes[0].get_xticks())


def test_a_learning_curve_of_one_step_is_seen_with_its_bound_and_can_be_read(drawn: list[Any]) -> None:
    figures.learning_curve([0], [0.516436], [0.516504])
    (axes,) = drawn[0].axes
    all_can_be_read(drawn[0])
    assert [line.get_marker() for line in axes.lines] == ["o", "x"]
    low, high = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [0]
    assert axes.yaxis.get_offset_text().get_text() == ""
