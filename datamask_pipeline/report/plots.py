"""Small plots as PNG bytes. Knows Arrow tables and plain rows; knows no stage."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa


def learning_curve_png(curve: pa.Table) -> bytes:
    """Objective (and bound, where the learner certifies one) over steps, one line per block.

    Args:
        curve: Columns ``step``, ``objective``, ``block`` and perhaps ``bound``.
    """
    figure, axes = _figure()
    blocks = curve.column("block").to_pylist()
    for block in sorted(set(blocks)):
        rows = [row for row in curve.to_pylist() if row["block"] == block]
        steps = [row["step"] for row in rows]
        axes.plot(steps, [row["objective"] for row in rows], label=f"objective, block {block}")
        bounds = [(row["step"], row["bound"]) for row in rows if row.get("bound") is not None]
        if bounds:
            axes.plot(*zip(*bounds, strict=True), linestyle="--", label=f"upper bound, block {block}")
    axes.set_xlabel("step")
    axes.set_ylabel("objective (0 = random, 1 = best of each term alone)")
    axes.legend(fontsize=7)
    return _png(figure)


def loss_curve_png(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Training loss in nats per token over tokens seen."""
    figure, axes = _figure()
    axes.plot([row["tokens"] for row in rows], [row["loss"] for row in rows])
    axes.set_xlabel("tokens seen")
    axes.set_ylabel("training loss (nats per token)")
    return _png(figure)


def differences_png(rows: Sequence[Mapping[str, Any]], *, baseline: str) -> bytes:
    """Each arm's score less the baseline's per task, with 95 % intervals.

    Args:
        rows: Mappings with ``arm``, ``task``, ``difference``, ``half_width``.
        baseline: The arm that the others are compared with.
    """
    figure, axes = _figure(width=7.5, height=4.5)
    tasks = sorted({str(row["task"]) for row in rows})
    arms = sorted({str(row["arm"]) for row in rows})
    for offset, arm in enumerate(arms):
        mine = {str(row["task"]): row for row in rows if row["arm"] == arm}
        places = [
            index + 0.8 * (offset + 0.5) / len(arms) - 0.4 for index, task in enumerate(tasks) if task in mine
        ]
        found = [mine[task] for task in tasks if task in mine]
        axes.errorbar(
            [row["difference"] for row in found],
            places,
            xerr=[row["half_width"] for row in found],
            fmt="o",
            markersize=3,
            linewidth=0.8,
            label=arm,
        )
    axes.axvline(0.0, color="black", linewidth=0.6)
    axes.set_yticks(range(len(tasks)), tasks, fontsize=7)
    axes.set_xlabel(f"score less {baseline}'s (95 % interval over questions)")
    axes.legend(fontsize=7)
    return _png(figure)


def _figure(*, width: float = 5.0, height: float = 3.0) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90, metadata={"Software": None})
    return buffer.getvalue()
