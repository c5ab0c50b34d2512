"""Small plots of learning and of results. Knows Arrow tables and plain rows; knows no stage."""

import io
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

Row = Mapping[str, Any]
_MARKERS = "osD^v<>"
_SMALL = 7
_SPARK_POINTS = 40
_FEW = 40
_BLOCKS = "▁▂▃▄▅▆▇█"


def learning_curve_figure(curve: pa.Table) -> Any:
    """Objective (and upper bound, where the learner certifies one) over steps, one colour a block.

    Args:
        curve: Columns ``step``, ``objective``, ``block`` and perhaps ``bound``.
    """
    figure, (axes,) = _figure(width=5.0, height=3.6)
    rows = curve.to_pylist()
    for number, block in enumerate(sorted({row["block"] for row in rows})):
        mine = [row for row in rows if row["block"] == block]
        bounds = [(row["step"], row["bound"]) for row in mine if row.get("bound") is not None]
        style: dict[str, Any] = {"color": f"C{number % 10}", "linewidth": 1.0}
        points = [(row["step"], row["objective"]) for row in mine]
        _draw_course(axes, points, label="objective", **style)
        if bounds:
            _draw_course(axes, bounds, "x", linestyle="--", label="upper bound", **style)
    blocks = len({row["block"] for row in rows})
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("step" if blocks == 1 else f"step ({blocks} blocks, one colour each)")
    axes.set_ylabel("objective (0 = random,\n1 = estimated best of each term)")
    _legend(figure, axes)
    return figure


def objectives_figure(curves: Mapping[str, pa.Table]) -> Any:
    """Objective over steps, one line a curve.

    Args:
        curves: Columns ``step`` and ``objective``, by the line's label.
    """
    figure, (axes,) = _figure(width=6.0, height=4.0)
    for label, curve in curves.items():
        steps, objectives = (curve.column(name).to_pylist() for name in ("step", "objective"))
        _draw_course(axes, list(zip(steps, objectives, strict=True)), label=label)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("step")
    axes.set_ylabel("objective (0 = random)")
    _legend(figure, axes)
    return figure


def loss_curve_figure(rows: Sequence[Row]) -> Any:
    """Training loss in nats per token over tokens seen."""
    figure, (axes,) = _figure(width=5.0, height=3.0)
    _draw_course(axes, [(row["tokens"], row["loss"]) for row in rows])
    axes.set_xlabel("tokens seen")
    axes.set_ylabel("training loss (nats per token)")
    return figure


def _draw_course(axes: Any, points: Sequence[tuple[float, float]], shape: str = "o", **style: Any) -> None:
    """Points as a line; few are marked, of which one would be no line and not be seen."""
    axes.plot(*zip(*points, strict=True), marker=shape if len(points) < _FEW else None, markersize=3, **style)


def differences_figure(rows: Sequence[Row], *, baseline: str, order: Iterable[str] = ()) -> Any:
    """Each arm's score less the baseline's per task with 95 % intervals, one panel an architecture.

    Args:
        rows: Mappings with ``arm``, ``architecture``, ``task``, ``difference``, ``half_width`` (NaN: no interval)
            and ``interval``.
        baseline: The arm that the others are compared with.
        order: Arms as the configuration lists them, and so as the tables have them; those not named come last.
    """
    architectures, tasks, names = (
        sorted({str(row[name]) for row in rows}) for name in ("architecture", "task", "arm")
    )
    arms = [arm for arm in dict.fromkeys([*order, *names]) if arm in names]
    shapes = markers(arms)
    figure, panels = _figure(
        width=2.0 + 3.5 * len(architectures),
        height=1.8 + len(tasks) * max(0.25, 0.12 * len(arms)) + 0.2 * len(arms),
        panels=len(architectures),
    )
    for panel, architecture in zip(panels, architectures, strict=True):
        for number, arm in enumerate(arms):
            mine = [row for row in rows if row["arm"] == arm and row["architecture"] == architecture]
            shift = 0.8 * (number + 0.5) / len(arms) - 0.4
            _draw_arm(panel, mine, [tasks.index(row["task"]) + shift for row in mine], number, shapes[arm])
        covered = " and ".join(
            sorted({str(row["interval"]) for row in rows if _is_known(row)}) or ["questions"]
        )
        hollow = "" if all(map(_is_known, rows)) else "; hollow: no spread, no interval"
        about = f"score less that of {baseline} (95 % interval over {covered}{hollow})"
        panel.set_title(architecture, fontsize=_SMALL + 2)
        panel.axvline(0.0, color="black", linewidth=0.6)
        panel.set_yticks(range(len(tasks)), tasks, fontsize=_SMALL)
        panel.set_xlabel(textwrap.fill(about, 48), fontsize=_SMALL + 1)
    panels[0].invert_yaxis()  # the first task on top, in every panel
    _legend(figure, *panels)
    return figure


def _draw_arm(panel: Any, rows: Sequence[Row], places: Sequence[float], number: int, shape: str) -> None:
    """Filled with a bar where there is an interval, hollow where there is none; a shape beside the colour."""
    for known in (True, False):
        found = [(row, place) for row, place in zip(rows, places, strict=True) if _is_known(row) is known]
        if found:
            panel.errorbar(
                [row["difference"] for row, _ in found],
                [place for _, place in found],
                xerr=[row["half_width"] for row, _ in found] if known else None,
                fmt=shape,
                color=f"C{number % 10}",
                markerfacecolor=f"C{number % 10}" if known else "white",
                markersize=3,
                linewidth=0.8,
                label=rows[0]["arm"],
            )


def _is_known(row: Row) -> bool:
    return not math.isnan(row["half_width"])


def _figure(*, width: float, height: float, panels: int = 1) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, panels, squeeze=False, sharey=True)[0])


def _legend(figure: Any, *panels: Any) -> None:
    """One entry a label, below the panels: over data it would hide some."""
    entries: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    columns = max(1, int(figure.get_figwidth() * 12 / (max(map(len, entries)) + 6)))
    figure.legend(
        entries.values(), entries.keys(), loc="outside lower center", ncols=columns, fontsize=_SMALL
    )


def sparkline(values: Sequence[float]) -> bytes:
    """The course of some numbers as a PNG of few hundred bytes, without axes: a page can hold it in its text."""
    from matplotlib.figure import Figure

    shown = min(len(values), _SPARK_POINTS)
    thinned = [values[round(place * (len(values) - 1) / max(shown - 1, 1))] for place in range(shown)]
    figure = Figure(figsize=(160 / 72, 32 / 72), dpi=72)
    axes = figure.add_axes((0.01, 0.06, 0.98, 0.88))
    axes.set_axis_off()
    # One colour without shades of it is what keeps the file small.
    axes.plot(thinned, linewidth=1.5, antialiased=False)
    return png(figure, dpi=72)


def small_plane(points: Mapping[str, tuple[float, float]]) -> bytes:
    """Points by what is across and upwards, each with the marker of ``markers``, as a PNG of few hundred bytes."""
    from matplotlib.figure import Figure
    from PIL import Image

    figure = Figure(figsize=(160 / 72, 96 / 72), dpi=72)
    axes = figure.add_axes((0.05, 0.08, 0.9, 0.84))
    axes.set_axis_off()
    axes.axhline(0, color="grey", linewidth=1)
    axes.axvline(0, color="grey", linewidth=1)
    axes.margins(0.1)
    for number, ((across, upwards), marker) in enumerate(
        zip(points.values(), markers(points).values(), strict=True)
    ):
        size = max(11 - 2 * number, 4)  # of points in one place, each is still seen
        axes.plot([across], [upwards], marker, color="C0", markersize=size, markeredgecolor="white")
    small = io.BytesIO()
    # Sixteen colours are enough, and a third of the bytes.
    Image.open(io.BytesIO(png(figure, dpi=72))).convert("RGB").quantize(16).save(small, "png", optimize=True)
    return small.getvalue()


def markers(names: Iterable[str]) -> dict[str, str]:
    """A shape for each name, as matplotlib calls it."""
    return {name: _MARKERS[number % len(_MARKERS)] for number, name in enumerate(names)}


def bars(counts: Sequence[int]) -> str:
    """A histogram as one line of block characters, for where no picture fits; what is there at all has a bar."""
    most = max(counts, default=0) or 1
    return "".join(" " if not count else _BLOCKS[(len(_BLOCKS) * count - 1) // most] for count in counts)


def png(figure: Any, dpi: int = 90) -> bytes:
    """A figure as PNG bytes that depend on it alone."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()
