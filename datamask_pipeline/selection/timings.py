"""Wall seconds by phase. Knows no phase's meaning."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Timings:
    """A stopwatch with named laps, started when it is made."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._laps: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time inside to a lap."""
        begun = time.perf_counter()
        yield
        self._laps[name] = self._laps.get(name, 0.0) + time.perf_counter() - begun

    def seconds(self) -> dict[str, float]:
        """The laps so far and the ``total`` since the start."""
        return {**self._laps, "total": time.perf_counter() - self._begun}
