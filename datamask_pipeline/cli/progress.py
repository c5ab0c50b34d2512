"""Progress bars for a terminal. Knows no stage."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn


def progress_bars(console: Console) -> Progress:
    """Bars with time elapsed and left, gone when the work is done."""
    columns = (TextColumn("{task.description:<44}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
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
