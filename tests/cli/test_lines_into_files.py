"""What a log is told of progress: a line now and then of what takes long, and none of what is quickly done."""

import io

import pytest
from rich.console import Console

from datamask_pipeline.cli import progress
from datamask_pipeline.cli.progress import Lines, Tracker, followed


class Clock:
    """Seconds as a test sets them."""

    now = 0.0

    def monotonic(self) -> float:
        """The seconds."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def test_what_takes_long_is_told_of_every_half_minute(clock: Clock) -> None:
    told: list[str] = []
    lines = Lines(told.append)
    for second in range(101):
        clock.now = float(second)
        lines("embed crawl", 20 * second, 2_000)
        lines("of unknown length", second, None)
    assert told == [
        *("embed crawl: 620 of 2,000", "of unknown length"),
        *("embed crawl: 1,240 of 2,000", "of unknown length"),
        *("embed crawl: 1,860 of 2,000", "of unknown length"),
    ]
    lines.clear()
    lines("embed crawl", 1, 2_000)
    assert len(told) == 6


def test_ends_are_told_where_no_other_line_tells_of_them(clock: Clock) -> None:
    for ends, number in ((True, 2), (False, 0)):
        told: list[str] = []
        lines = Lines(told.append, ends=ends)
        for done in (0, 1, 2):
            lines("score crawl", done, 2)
        assert len(told) == number


def test_a_log_gets_lines_and_a_terminal_bars(clock: Clock) -> None:
    log = io.StringIO()
    with followed(Console(file=log, width=20)) as progress:
        for clock.now in (0.0, 31.0):
            progress("embed a-crawl-with-a-long-name", int(clock.now), 100)
        progress.clear()
    assert log.getvalue() == "embed a-crawl-with-a-long-name: 31 of 100\n"
    with followed(Console(file=io.StringIO(), force_terminal=True)) as progress:
        assert isinstance(progress, Tracker)
