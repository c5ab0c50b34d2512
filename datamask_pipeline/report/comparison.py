"""Compares arms by their benchmark results. Knows rows; knows no store and no stage."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def final_results(rows: Sequence[Row]) -> list[Row]:
    """The rows of each run's last checkpoint."""
    last: dict[str, int] = {}
    for row in rows:
        last[row["run"]] = max(last.get(row["run"], row["checkpoint"]), row["checkpoint"])
    return [row for row in rows if row["checkpoint"] == last[row["run"]]]


def differences(rows: Sequence[Row], *, baseline: str) -> list[dict[str, Any]]:
    """Each arm's mean score less the baseline's, task by task, over runs of equal architecture and seed.

    With several seeds the interval is Student's over the paired differences. With one seed it can only come
    from the questions' standard errors, taken as independent: it then says nothing of the seed's share.

    Args:
        rows: Benchmark results of final checkpoints.
        baseline: The arm to compare with.

    Returns:
        Rows of ``arm, architecture, task, difference, half_width (95 %), seeds, interval`` where
        ``interval`` names what the interval covers; ``half_width`` is NaN where no standard error is known.
    """
    values = {(r["arm"], r["architecture"], r["seed"], r["task"]): r for r in rows}
    groups: dict[tuple[str, str, str], list[tuple[Row, Row]]] = {}
    for (arm, architecture, seed, task), row in values.items():
        control = values.get((baseline, architecture, seed, task))
        if arm != baseline and control is not None:
            groups.setdefault((arm, architecture, task), []).append((row, control))
    return [
        {"arm": arm, "architecture": architecture, "task": task, **_paired(pairs)}
        for (arm, architecture, task), pairs in sorted(groups.items())
    ]


def mean_score(rows: Sequence[Row], arm: str) -> float:
    """Mean over the tasks of the arm's mean over runs; NaN without rows."""
    by_task: dict[str, list[float]] = {}
    for row in rows:
        if row["arm"] == arm:
            by_task.setdefault(row["task"], []).append(row["value"])
    means = [sum(values) / len(values) for values in by_task.values()]
    return sum(means) / len(means) if means else math.nan


def _paired(pairs: list[tuple[Row, Row]]) -> dict[str, Any]:
    deltas = [row["value"] - control["value"] for row, control in pairs]
    mean = sum(deltas) / len(deltas)
    if len(deltas) > 1:
        from scipy.stats import t

        variance = sum((delta - mean) ** 2 for delta in deltas) / (len(deltas) - 1)
        half_width = float(t.ppf(0.975, len(deltas) - 1)) * math.sqrt(variance / len(deltas))
        return {"difference": mean, "half_width": half_width, "seeds": len(deltas), "interval": "seeds"}
    row, control = pairs[0]
    errors = [row["stderr"], control["stderr"]]
    known = all(error is not None for error in errors)
    half_width = 1.96 * math.hypot(*errors) if known else math.nan
    return {"difference": mean, "half_width": half_width, "seeds": 1, "interval": "questions"}
