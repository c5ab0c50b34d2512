"""Optimisation curves of mask learning as a picture. Knows no learner."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from datamask_pipeline.errors import ConfigurationError


def check_plot(path: Path) -> None:
    """Refuse a picture that could not be drawn.

    Raises:
        ConfigurationError: there is no such folder, or no picture of that suffix.
    """
    from matplotlib.figure import Figure

    formats = Figure().canvas.get_supported_filetypes()
    if path.suffix.lstrip(".") not in formats:
        raise ConfigurationError(f"--plot {path}: the suffix must be one of {', '.join(sorted(formats))}")
    if not path.parent.is_dir():
        raise ConfigurationError(f"--plot {path}: there is no folder {path.parent}; make it first")


def plot_curves(curves: Mapping[str, pa.Table], path: Path) -> None:
    """Objective over steps, one line a run; the format follows the file's suffix.

    Args:
        curves: Columns ``step`` and ``objective``, by the line's label.
        path: The picture.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for label, curve in curves.items():
        axes.plot(curve.column("step").to_pylist(), curve.column("objective").to_pylist(), label=label)
    axes.set_xlabel("step")
    axes.set_ylabel("objective (0 = random)")
    axes.legend()
    figure.savefig(path)
