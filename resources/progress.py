"""Progress as log lines, at a bounded rate: a stage reports every shard and step, a log must not."""

import time
from collections.abc import Callable

SECONDS_BETWEEN_LINES = 10.0


class LogProgress:
    """Passes a stage's progress on to a log.

    Args:
        write: Takes one line.
        seconds: Least time between two lines.
    """

    def __init__(self, write: Callable[[str], None], *, seconds: float = SECONDS_BETWEEN_LINES) -> None:
        self._write, self._seconds = write, seconds
        self._last = time.monotonic()

    def __call__(self, what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if now - self._last < self._seconds:
            return
        self._last = now
        self._write(f"{what}: {done:,} of {total:,}" if total else f"{what}: {done:,}")
