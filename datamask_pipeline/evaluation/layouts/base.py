"""What every layout shares: an item, a reason for refusing a row, and reading a field.

Knows no benchmark.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


class BadRow(ValueError):
    """A row that cannot be asked; the message says why. It is counted, never raised to the caller."""


@dataclass(frozen=True)
class Item:
    """One thing to ask, in the stock columns of its task.

    `num_choices` is 0 for a free answer; `num_rows` is how many source rows went into it.
    """

    row: Row
    num_choices: int
    num_rows: int = 1


@dataclass(frozen=True)
class Layout:
    """`read` turns a row into an item; `finish`, given all items and a seed, may join or complete them."""

    read: Callable[[Row], Item]
    finish: Callable[[list[Item], int], list[Item]] | None = None


def text_of(row: Row, field: str) -> str:
    """The text of a field, with at least one character that is not a space.

    Raises:
        BadRow: Missing, null, empty or not a text.
    """
    value = row.get(field)
    if value is None:
        raise BadRow(f"field {field!r} is missing or null")
    if not isinstance(value, str):
        raise BadRow(f"field {field!r} is {type(value).__name__}, not text")
    if not value.strip():
        raise BadRow(f"field {field!r} is empty")
    return value


def texts_of(row: Row, field: str, *, at_least: int = 1) -> list[str]:
    """The list of texts in a field, none of them empty.

    Raises:
        BadRow: Missing, not a list of texts, or too short.
    """
    value = row.get(field)
    if not isinstance(value, list):
        raise BadRow(f"field {field!r} is missing or not a list")
    if len(value) < at_least:
        raise BadRow(f"field {field!r} has {len(value)} entries, fewer than {at_least}")
    if not all(isinstance(item, str) and item.strip() for item in value):
        raise BadRow(f"field {field!r} holds an entry that is empty or not text")
    return value


def index_of(row: Row, field: str, legal: dict[str, int]) -> int:
    """The position a label stands for; integers and texts are treated alike.

    Raises:
        BadRow: Missing, or not one of `legal`.
    """
    value = row.get(field)
    label = str(value).strip()
    if isinstance(value, bool) or label not in legal:
        raise BadRow(f"field {field!r} is {value!r}, none of: {', '.join(legal)}")
    return legal[label]
