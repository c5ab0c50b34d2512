"""The plots of a selection's page as SVG or PNG. Knows numbers and names; knows no record and no HTML.

Colours are Okabe and Ito's, which the colour-blind tell apart; shapes, dashes and fills say the same without colour. Sizes
are those of a phone's width, so that no letter becomes too small there.
"""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from datamask_pipeline.look.embedding_map import EmbeddingMap
from datamask_pipeline.look.funnel import Step
from datamask_pipeline.look.measured import Distribution
from datamask_pipeline.printable import inert
from datamask_pipeline.report.plots import png

BLACK, BLUE, ORANGE, GREEN, PURPLE, SKY, RED = (
    "#000000", "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00",
)  # fmt: skip
GREY: Final = "#767676"
_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY, BLACK)
_MARKERS = "os^Dv<>PX*"
_WIDTH, _HEIGHT = 4.6, 3.2
_NAMES_CUT = 28
_FEW: Final = 40  # points of a curve that are marked, each
NAMES_ACROSS: Final = 6  # more names have no room side by side
_LEGEND_LETTERS = 54  # of both columns
_LEGEND_ROW = 0.17


def plane(
    arms: Mapping[str, tuple[float, float]], *, weights: tuple[float, float], bound: float | None, scale: str
) -> str:
    """Every arm by its diversity (across) and its quality (upwards), and the line that no mask lies beyond.

    Args:
        arms: Terms of diversity and quality, by arm.
        weights: Weight of the diversity and of the quality term in the objective.
        bound: What no mask exceeds; ``None`` where nothing is certified.
        scale: What the terms' numbers mean.
    """
    figure, axes = _figure()
    across = [0.0, *(diversity for diversity, _ in arms.values())]
    upwards = [0.0, *(quality for _, quality in arms.values())]
    if bound is not None and all(weights):
        ends = [bound / weights[0] - weights[1] / weights[0] * quality for quality in (-10.0, 10.0)]
        axes.plot(
            ends,
            [-10.0, 10.0],
            "--",
            color=BLACK,
            linewidth=1.2,
            label="certified bound: no mask lies beyond",
        )
    for number, (name, (diversity, quality)) in enumerate(arms.items()):
        axes.plot(
            [diversity],
            [quality],
            _MARKERS[number % len(_MARKERS)],
            color=_COLOURS[number % len(_COLOURS)],
            markersize=11 - 1.5 * min(number, 4),  # of arms in one place, each is still seen
            markeredgecolor="white",
            markeredgewidth=0.5,  # a wider one hides small marks
            label=_short(name),
        )
    for limits, values in ((axes.set_xlim, across), (axes.set_ylim, upwards)):
        room = 0.15 * (max(values) - min(values)) or 0.1
        limits(min(values) - room, max(values) + room)
    axes.xaxis.get_major_locator().set_params(nbins=6)
    axes.axhline(0, color=GREY, linewidth=0.5)
    axes.axvline(0, color=GREY, linewidth=0.5)
    axes.set_xlabel(f"diversity ({scale})")
    axes.set_ylabel(f"quality ({scale})")
    _legend(figure, axes)
    return svg(figure)


def learning_curve(steps: Sequence[int], objective: Sequence[float], bound: Sequence[float | None]) -> str:
    """Objective by step, and the bound where one is known."""
    figure, axes = _figure()
    axes.plot(
        steps, objective, "o-" if len(steps) < _FEW else "-", color=BLUE, markersize=4, label="objective"
    )
    known = [(step, value) for step, value in zip(steps, bound, strict=True) if value is not None]
    if known:  # of one point a line alone would not be seen
        style = "x--" if len(known) < _FEW else "--"
        axes.plot(*zip(*known, strict=True), style, color=BLACK, markersize=4, label="bound")
    axes.xaxis.get_major_locator().set_params(integer=True)
    if len(steps) == 1:  # of a range without an extent ticks are fractions all the same
        axes.set_xticks(steps)
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.set_xlabel("step of the learner")
    axes.set_ylabel("objective (0: random masks)")
    _legend(figure, axes)
    return svg(figure)


def histogram(found: Distribution, label: str, *, doubling: bool = False) -> str:
    """Shares of documents in each bin: before as a filled grey step, after as a blue line."""
    figure, axes = _figure()
    for counts, style, name in (
        (found.before, {"fill": True, "color": "#c8c8c8"}, "before: could be chosen"),
        (found.after, {"color": BLUE, "linewidth": 1.8}, "after: chosen"),
    ):
        axes.stairs(_shares(counts), found.edges, label=name, **style)
    if doubling:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel(label)
    axes.set_ylabel("share of documents (%)")
    _legend(figure, axes)
    return svg(figure)


def groups(found: Distribution) -> str:
    """Share of each group before (grey, hatched) and after (blue)."""
    figure, axes = _figure(height=1.0 + 0.34 * len(found.names))
    totals = [
        sum(counts) + found.others[side] + found.unknown[side]
        for side, counts in enumerate((found.before, found.after))
    ]
    places = range(len(found.names))
    for counts, total, shift, style, name in (
        (
            found.before,
            totals[0],
            -0.2,
            {"color": "#c8c8c8", "hatch": "///", "edgecolor": GREY},
            "before: could be chosen",
        ),
        (found.after, totals[1], 0.2, {"color": BLUE}, "after: chosen"),
    ):
        shares = [100 * count / max(total, 1) for count in counts]
        axes.barh(
            [place + shift for place in places], shares, height=0.36, label=name, linewidth=0.5, **style
        )
    axes.set_yticks(places, [_short(name) for name in found.names])
    axes.invert_yaxis()
    axes.set_xlabel("share of documents (%)")
    _legend(figure, axes)
    return svg(figure)


def overlap(names: Sequence[str], shares: Sequence[Sequence[float]]) -> str:
    """A square of shares in percent: of what the row's arm chose, how much the column's arm chose too.

    Columns without room for their names have the numbers of these rows.
    """
    are_many = len(names) > NAMES_ACROSS
    figure, axes = _figure(height=1.2 + (0.3 if are_many else 0.5) * len(names))
    axes.imshow(
        [[value / 100 for value in row] for row in shares], cmap="cividis", vmin=0, vmax=1, aspect="auto"
    )
    for row, values in enumerate(shares):
        for column, value in enumerate(values):
            axes.text(
                column,
                row,
                f"{value:.0f}",
                ha="center",
                va="center",
                color="white" if value < 45 else "black",
                fontsize=7 if are_many else None,
            )
    if are_many:
        axes.set_xticks(range(len(names)), [str(number + 1) for number in range(len(names))], fontsize=8)
        rows = [f"{_short(name, 20)} ({number + 1})" for number, name in enumerate(names)]
        axes.set_yticks(range(len(names)), rows, fontsize=8)
    else:
        axes.set_xticks(range(len(names)), [_short(name, 12) for name in names], rotation=25, ha="right")
        axes.set_yticks(range(len(names)), [_short(name) for name in names])
    return svg(figure)


def bars(values: Mapping[str, float], label: str) -> str:
    """One bar a name, with its value."""
    figure, axes = _figure(height=0.9 + 0.42 * len(values))
    most = max(values.values()) or 1
    axes.barh(range(len(values)), list(values.values()), color=BLUE, height=0.6)
    for place, value in enumerate(values.values()):
        axes.text(value + most / 60, place, f"{value:.2f}", va="center")
    axes.set_yticks(range(len(values)), [_short(name) for name in values])
    axes.set_xlim(0, most * 1.25)
    axes.invert_yaxis()
    figure.supxlabel(label, fontsize="medium")  # below the names too: bars beside long ones are narrow
    return svg(figure)


def funnel(steps: Sequence[Step]) -> str:
    """One bar a stage, as long as what remained."""
    figure, axes = _figure(height=0.8 + 0.42 * len(steps))
    most = max(step.kept for step in steps) or 1
    axes.barh(range(len(steps)), [step.kept for step in steps], color=BLUE, height=0.6)
    for place, step in enumerate(steps):
        axes.text(step.kept + most / 60, place, f"{step.kept:,}", va="center")
    axes.set_yticks(range(len(steps)), [f"{step.stage}: {step.what}" for step in steps])
    axes.set_xlim(0, most * 1.25)
    axes.invert_yaxis()
    axes.xaxis.set_visible(False)
    return svg(figure)


def embedding_map(found: EmbeddingMap) -> bytes:
    """One panel a group, its documents over those of all; a picture of dots, as thousands of them would be long as SVG."""
    styles = {"top diversity": (GREEN, "^"), "top quality": (ORANGE, "s"), "selected": (BLUE, "o")}
    from matplotlib.figure import Figure

    wanted = [name for name in styles if name in found.groups]
    figure = Figure(figsize=(_WIDTH, 2.7 * len(wanted)), layout="constrained")
    panels = figure.subplots(len(wanted), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
    for panel, name in zip(panels, wanted, strict=True):
        colour, marker = styles[name]
        mine = found.groups[name]
        panel.scatter(*found.places.T, s=3, color="#c8c8c8", linewidths=0)
        panel.scatter(*found.places[mine].T, s=7, color=colour, marker=marker, linewidths=0)
        panel.set_title(f"{name} ({int(mine.sum()):,} of {len(mine):,})", fontsize=10)
        panel.set_xticks([])
        panel.set_yticks([])
    return png(figure, dpi=110)


def svg(figure: Any) -> str:
    """A figure as an SVG element that depends on it alone."""
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "datamask", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), flags=re.DOTALL)


def _figure(height: float = _HEIGHT) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _legend(figure: Any, axes: Any) -> None:
    """In two columns where their words have room, on a taller figure where there are many rows."""
    handles, labels = axes.get_legend_handles_labels()
    half = -(-len(labels) // 2)
    widest = [max(map(len, each), default=0) for each in (labels[:half], labels[half:])]
    columns = 2 if sum(widest) <= _LEGEND_LETTERS else 1
    rows = -(-len(labels) // columns)
    figure.set_figheight(figure.get_figheight() + _LEGEND_ROW * max(0, rows - 2))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=9, frameon=False)


def _shares(counts: Sequence[int]) -> list[float]:
    total = sum(counts) or 1
    return [100 * count / total for count in counts]


def _short(name: str, most: int = _NAMES_CUT) -> str:
    """A name as a plot shows it: inert, no formula, cut in the middle, as names of a family differ at their ends."""
    shown = inert(name)
    if len(shown) > most:
        shown = shown[: most // 2] + "…" + shown[len(shown) - (most - 1) // 2 :]
    return shown.replace("$", r"\$")
