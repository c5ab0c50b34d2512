"""Prints what a question found in the record: as lines, or as JSON for programs; both inert. Knows no question."""

import json
from collections.abc import Iterable
from typing import Any

import typer

from datamask_pipeline.printable import inert


def print_answer(found: Any, lines: Iterable[str], *, as_json: bool, indent: int | None = 1) -> None:
    """Print one answer.

    Args:
        found: What was found, as JSON values.
        lines: The same for people; not asked for where JSON is wanted.
        as_json: Whether to print it as one JSON object.
        indent: Of that object; ``None``: it stands in one line, as one of several.
    """
    if as_json:
        typer.echo(inert(json.dumps(found, ensure_ascii=False, indent=indent), keep="\n"))
    else:
        for line in lines:
            typer.echo(inert(line))
