"""Progress: bars on a terminal, lines elsewhere. Knows no stage."""

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

#: Seconds of work on one thing until it is told of, and between two lines of it.
_BETWEEN_LINES: Final = 30.0


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
    """Tells of the stages' progress in lines, for a log: now and then of what takes long.

    Args:
        tell: Takes a line.
        ends: Tell also where something begins or is done: of steps of which no other line tells.
    """

    def __init__(self, tell: Callable[[str], None], *, ends: bool = False) -> None:
        self._tell, self._ends = tell, ends
        self._told: dict[str, float] = {}

    def __call__(self, what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        is_end = what not in self._told or done == total
        if now - self._told.setdefault(what, now) > _BETWEEN_LINES or (self._ends and is_end):
            self._told[what] = now
            self._tell(what if total is None else f"{what}: {done:,} of {total:,}")

    def clear(self) -> None:
        """Forget what a finished step told of."""
        self._told.clear()


@contextmanager
def followed(console: Console, *, ends: bool = False) -> Iterator[Tracker | Lines]:
    """What is told of progress inside it, as bars on a terminal or else as lines.

    Args:
        console: Where it is told.
        ends: As of `Lines`.
    """
    if not console.is_terminal:
        say = functools.partial(console.print, markup=False, highlight=False, soft_wrap=True)
        yield Lines(say, ends=ends)
        return
    with progress_bars(console) as bar:
        tracker = Tracker(bar)
        yield tracker
        tracker.clear()
