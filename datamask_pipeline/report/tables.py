"""Tables whose figures are never cut: columns that do not fit side by side go on below. Knows no record."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

Row = tuple[str, Sequence[str]]
_BORDERS = 3  # of a column: a space on either side and a line


def print_in_blocks(
    console: Console, title: str, columns: Sequence[str], sections: Sequence[Sequence[Row]]
) -> None:
    """Print a table, in as many blocks of columns as the console's width asks for.

    Args:
        console: Where to; a block of one column that is wider than it is printed all the same.
        title: Stands above the first block.
        columns: What heads each column of figures.
        sections: Rows of (name, one cell a column), with a line between sections.
    """
    rows = [row for section in sections for row in section]
    names = max(len(name) for name, _ in rows)
    widths = [max(len(head), *(len(cells[place]) for _, cells in rows)) for place, head in enumerate(columns)]
    for number, block in enumerate(_blocks(widths, console.width - names - _BORDERS - 1)):
        needed = names + sum(widths[place] for place in block) + _BORDERS * (len(block) + 1) + 1
        table = Table(title=None if number else title, title_justify="left", width=needed)
        table.add_column("", no_wrap=True)
        for place in block:
            table.add_column(columns[place], justify="right", no_wrap=True)
        for section in sections:
            for name, cells in section:
                table.add_row(name, *(cells[place] for place in block))
            table.add_section()
        console.print(table, width=max(needed, console.width), crop=False, no_wrap=True, overflow="ignore")


def _blocks(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """Places of neighbouring columns that fit together; at least one each."""
    block: list[int] = []
    used = 0
    for place, width in enumerate(widths):
        if block and used + width + _BORDERS > room:
            yield block
            block, used = [], 0
        block.append(place)
        used += width + _BORDERS
    if block:
        yield block


def figure(value: float | None) -> str:
    """Four places after the point; a smaller number with two digits that say something."""
    if value is None or value != value:
        return "-"
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.001 else f"{value:.2g}"


def signed(row: Mapping[str, Any] | None) -> str:
    """A ``difference`` with its ``half_width``; ``None``: there is no such row."""
    if row is None:
        return "-"
    if row["half_width"] is None or not math.isfinite(row["half_width"]):  # as computed NaN, as recorded null
        return f"{row['difference']:+z.4f} (no interval)"
    return f"{row['difference']:+z.4f} ± {row['half_width']:.4f}"
