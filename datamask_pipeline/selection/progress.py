"""The curve of a run and its progress. Knows no learner."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from datamask_pipeline.errors import ConfigurationError

Progress = Callable[[str, int, int | None], None]
"""Called with a line of text, the step and the number of steps."""


class Curve:
    """One record for each objective that a learner tells, and a line a step for whoever watches.

    Args:
        progress: Who watches, if anybody.

    Raises:
        ConfigurationError: nothing that can be called watches.
    """

    def __init__(self, progress: Progress | None) -> None:
        if progress is not None and not callable(progress):
            raise ConfigurationError(
                f"progress must be a function of a line of text, the step and the number of steps, not {progress!r:.120}"
            )
        self.progress = progress
        self.records: list[dict[str, Any]] = []
        self._begun = time.perf_counter()
        self._seconds_before, self._steps_before = 0.0, 0
        self._last: dict[str, Any] = {"step": 0}

    def __call__(self, record: dict[str, Any]) -> None:
        seconds, self._last = time.perf_counter() - self._begun, record
        if record.get("objective") is not None:
            # A resumed learner begins with the step that it had told last.
            while self.records and self.records[-1]["step"] >= record["step"]:
                self.records.pop()
            self.records.append({"wall_seconds": self._seconds_before + seconds, **record})
        if self.progress is not None:
            line = _line(record, seconds, record["step"] - self._steps_before)
            self.progress(line, record["step"], record.get("num_steps"))

    def end(self, value: float, bound: float | None, gap: float | None) -> None:
        """Tell what was reached, where the policy told no objective on its way."""
        if not self.records:
            self({**self._last, "objective": value, "bound": bound, "gap": gap})

    def go_on_from(self, records: list[dict[str, Any]]) -> None:
        """Take over the curve of the run that is resumed."""
        self.records = list(records)
        if records:
            self._seconds_before, self._steps_before = records[-1]["wall_seconds"], records[-1]["step"]

    def table(self) -> pa.Table:
        """One row a record: step, wall_seconds, objective, bound, gap, and what else the learner tells."""
        names = dict.fromkeys(("step", "wall_seconds", "objective", "bound", "gap"))
        for record in self.records:
            names |= dict.fromkeys(record)
        names.pop("num_steps", None)
        columns = [_column(name, [record.get(name) for record in self.records]) for name in names]
        return pa.Table.from_arrays(columns, names=list(names))


def _column(name: str, values: list[Any]) -> pa.Array:
    """Numbers, null where there is none; from buffers, as `pa.array` imports pandas, which takes a quarter of a second."""
    known = np.array([value is not None for value in values], bool)
    kind = np.int64 if name == "step" else np.float64
    numbers = np.array([0 if value is None else value for value in values], kind)
    buffers = [pa.py_buffer(np.packbits(known, bitorder="little")), pa.py_buffer(numbers)]
    return pa.Array.from_buffers(pa.from_numpy_dtype(kind), len(values), buffers)


def _line(record: dict[str, Any], seconds: float, steps: int) -> str:
    """What a step tells; the time left follows from the seconds and steps of this very process."""
    parts = [f"{name} {record[name]:.6g}" for name in ("objective", "bound") if record.get(name) is not None]
    if record.get("gap") is not None:
        parts.append(f"gap {record['gap']:.3%}")
    if record.get("num_steps") and steps > 0:
        left = seconds / steps * (record["num_steps"] - record["step"])
        parts.append(f"at most {left:.0f} s left")
    return ", ".join(parts)
