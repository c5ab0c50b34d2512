"""The curve of a run and its progress. Knows no learner."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

Progress = Callable[[str, int, int | None], None]
"""Called with a line of text, the step and the number of steps."""


class Curve:
    """One record a step, and a line for whoever watches.

    Args:
        progress: Who watches, if anybody.
        random_value: The objective's mean over random masks, where the curve's shares start.
    """

    def __init__(self, progress: Progress | None, random_value: float) -> None:
        self.progress, self.random_value = progress, random_value
        self._begun = time.perf_counter()
        self._records: list[dict[str, Any]] = []

    def __call__(self, record: dict[str, Any]) -> None:
        seconds = time.perf_counter() - self._begun
        self._records.append({"step": record["step"], "wall_seconds": seconds, **record})
        if self.progress is not None:
            self.progress(_line(record, seconds), record["step"], record.get("num_steps"))

    def table(self) -> pa.Table:
        """One row a step: step, wall_seconds, objective, bound, gap, and what else the learner tells."""
        names = dict.fromkeys(("step", "wall_seconds", "objective", "bound", "gap"))
        for record in self._records:
            names |= dict.fromkeys(record)
        names.pop("num_steps", None)
        columns = {}
        for name in names:
            kind = pa.int64() if name == "step" else pa.float64()
            columns[name] = pa.array([record.get(name) for record in self._records], kind)
        return pa.table(columns)


def _line(record: dict[str, Any], seconds: float) -> str:
    parts = [f"{name} {record[name]:.6g}" for name in ("objective", "bound") if record.get(name) is not None]
    if record.get("gap") is not None:
        parts.append(f"gap {record['gap']:.3%}")
    if record.get("num_steps") and record["step"]:
        left = seconds / record["step"] * (record["num_steps"] - record["step"])
        parts.append(f"at most {left:.0f} s left")
    return ", ".join(parts)
