"""Progress: bars on a terminal, lines elsewhere. Knows no stage."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

#: Seconds between two lines about one thing that has neither begun nor ended.
_BETWEEN_LINES: Final = 60.0


def progress_bars(console: Console) -> Progress:
    """Bars with time elapsed and left, gone when the work is done."""
    columns = (
        TextColumn("{task.description:<44}", markup=False),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
    )
    return Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True)


class Tracker:
    """Shows the stages' progress callbacks as bars, one for each name."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(what, total=total)
        self._bar.update(self._tasks[what], completed=done, total=total)

    def clear(self) -> None:
        """Forget the bars of a finished step."""
        for task in self._tasks.values():
            self._bar.remove_task(task)
        self._tasks.clear()


class Lines:
    """Tells of the stages' progress in lines, for a log: where something begins or is done, and now and then between."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._told: dict[str, float] = {}

    def __call__(self, what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if what not in self._told or done == total or now - self._told[what] > _BETWEEN_LINES:
            self._told[what] = now
            self._tell(what if total is None else f"{what}: {done} of {total}")


@contextmanager
def followed(console: Console) -> Iterator[Tracker | Lines]:
    """What is told of progress inside it, as bars or as lines."""
    if not console.is_terminal:
        yield Lines(lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True))
        return
    with progress_bars(console) as bar:
        tracker = Tracker(bar)
        yield tracker
        tracker.clear()
