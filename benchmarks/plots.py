"""Lines of a benchmark as an SVG. Knows names and numbers only."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt

Series = dict[str, dict[str, list[float]]]
MOST_POINTS = 400


def plot_series(path: Path, title: str, series: Series, scaling: bool) -> None:
    """Draws each line, single points as marks; `scaling` means documents against seconds on logarithmic axes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A fixed salt keeps the ids in the file, and so the file, the same from run to run.
    mpl.rcParams["svg.hashsalt"] = "datamask"
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, line in series.items():
        step = max(1, len(line["x"]) // MOST_POINTS)
        mark = "o" if len(line["x"]) < 12 else ""
        axes.plot(line["x"][::step], line["y"][::step], marker=mark, label=name, linewidth=1.2)
    axes.set_title(title)
    if scaling:
        axes.set(xscale="log", yscale="log", xlabel="documents", ylabel="seconds")
    else:
        axes.set(xscale="log", xlabel=_horizontal(series), ylabel="objective")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _horizontal(series: Series) -> str:
    longest = max(series.values(), key=lambda line: len(line["x"]))
    counted = longest["x"][:2] == [1.0, 2.0]
    return "epochs" if counted else "seconds"
