"""`datamask audit flip`: what would have put a document on the other side? Parses and prints."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

from datamask_pipeline.audit.flip import Flip, Turn, flips
from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.printable import inert


def flip(
    document: Annotated[str, typer.Argument(help="A document's id as in the crawl, e.g. '<urn:uuid:...>'.")],
    release: Annotated[
        str | None, typer.Option("--release", "-r", help="One release; by default all.")
    ] = None,
    arm: Annotated[str | None, typer.Option("--arm", help="One arm; by default all.")] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object an arm, one a line.")] = False,
) -> None:
    """Tell at which lambda, budget or score weight a document would change sides.

    From the stored marginals, everything else held still: an answer of the first order at the stored mask, not a new
    selection, which would move the other documents too. Arms that rank by quality are answered exactly.

    Example:

        datamask audit flip '<urn:uuid:0f5b...>' --arm datamask
    """
    store = build_pipeline(config, settings).store
    with Console(stderr=True).status("reading the record"):
        found = flips(store, document, release, arm)
    if not as_json:
        typer.echo(inert(f"document {document}"))
    for each in found:
        if as_json:
            typer.echo(inert(json.dumps(dataclasses.asdict(each), ensure_ascii=False)))
        else:
            typer.echo("\n".join(map(inert, _lines(each))))


def _lines(flip: Flip) -> Iterator[str]:
    yield f"  {flip.release}/{flip.arm}, crawl {flip.crawl}: {'IN' if flip.selected else 'out'} ({flip.reason})"
    if flip.cannot is not None:
        yield f"    cannot be told: {flip.cannot}"
        return
    yield f"    place {flip.rank} of {flip.competitors} documents for {flip.places} places"
    for turn in flip.turns:
        yield f"    {turn.name} {turn.now:g}: {_turn(turn, selected=flip.selected)}"


def _turn(turn: Turn, *, selected: bool) -> str:
    if turn.cannot is not None:
        return turn.cannot
    goes = "goes out" if selected else "comes in"
    by_budget = turn.name in ("ratio", "num_documents", "num_tokens")
    ends = [
        f"{'at' if by_budget else word} {end:.6g}"
        for word, end in (("below", turn.below), ("above", turn.above))
        if end is not None
    ]
    if not ends:
        return "no value changes its side"
    note = "" if turn.kind == "exact" else " (first order)"
    return f"{goes} {' or '.join(ends)}{note}"
