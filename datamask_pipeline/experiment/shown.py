"""How an experiment's report shows tables, differences and plots. Knows no experiment."""

import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

from datamask_pipeline.experiment.judge import Difference


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """The lines of a Markdown table."""
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def signed(one: Difference) -> str:
    """A difference with half of its interval."""
    if math.isnan(one.half_width):
        return f"{one.difference:+z.4f} (no interval: no spread)"
    return f"{one.difference:+z.4f} ± {one.half_width:.4f}"


def number(value: float) -> str:
    """A number, or a dash for none."""
    return "-" if math.isnan(value) else f"{value:.4f}"


def png(figure: Any) -> bytes:
    """A figure of matplotlib as a PNG file, the same bytes each time."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110, metadata={"Software": None})
    return stream.getvalue()


def draw_differences(
    axes: Any, places: Sequence[float], found: Sequence[Difference], *, upright: bool, **style: Any
) -> None:
    """Differences with their intervals at these places, hollow where there is no interval.

    Args:
        axes: Of matplotlib.
        places: Along the other axis.
        found: As many.
        upright: Whether differences go up.
        style: As `errorbar` takes it.
    """
    values, widths = [one.difference for one in found], [one.half_width for one in found]
    across, up = (places, values) if upright else (values, places)
    drawn = axes.errorbar(across, up, **{"yerr" if upright else "xerr": widths}, **style)
    for x, y, width in zip(across, up, widths, strict=True):
        if math.isnan(width):
            axes.plot(
                x,
                y,
                drawn[0].get_marker(),
                color=drawn[0].get_color(),
                markerfacecolor="white",
                markersize=style["markersize"],
                zorder=drawn[0].get_zorder() + 1,
            )


def told_hollow(found: Iterable[Difference]) -> str:
    """What a plot says of hollow marks; nothing where there are none."""
    return "; hollow: no spread, no interval" if any(math.isnan(one.half_width) for one in found) else ""
