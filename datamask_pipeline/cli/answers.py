"""Prints what a question found in the record: as lines, or as JSON for programs; both inert. Knows no question."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import typer

from datamask_pipeline.printable import inert


def print_answer(found: Any, lines: Iterable[str], *, as_json: bool, indent: int | None = 1) -> None:
    """Print one answer.

    Args:
        found: What was found: JSON values, and values of the crawls' own columns, as `_strict` has them.
        lines: The same for people; not asked for where JSON is wanted.
        as_json: Whether to print it as one JSON object.
        indent: Of that object; ``None``: it stands in one line, as one of several.
    """
    if as_json:
        told = json.dumps(_strict(found), ensure_ascii=False, indent=indent, allow_nan=False)
        typer.echo(inert(told, keep="\n"))
    else:
        for line in lines:
            typer.echo(inert(line))


def _strict(value: Any) -> Any:
    """The value as JSON has it: dates, times and decimals as text, bytes in hexadecimal, NaN and infinities by name."""
    if isinstance(value, Mapping):
        return {str(name): _strict(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(inner) for inner in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
