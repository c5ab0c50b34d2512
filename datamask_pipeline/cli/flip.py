"""`datamask audit flip`: what would have put a document on the other side? Parses and prints."""

import dataclasses
from collections.abc import Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Annotated, Final, get_args

import typer

from datamask_pipeline.audit.flip import Flip, Turn, flips
from datamask_pipeline.audit.standing import ALIKE
from datamask_pipeline.cli.answers import print_answer
from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.cli.terminal import plain_console
from datamask_pipeline.printable import inert
from datamask_pipeline.selection.config import Budget

BUDGETS: Final = get_args(Budget)


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
    selection, which would move the other documents too. Arms that rank by quality are answered exactly. Of a copy, the
    answer is that of the document which stands for its text.

    Example:

        datamask audit flip '<urn:uuid:0f5b...>' --arm datamask
    """
    store = build_pipeline(config, settings).store
    store.refuse_missing()
    with plain_console(stderr=True).status("reading the record"):
        found = flips(store, document, release, arm)
    if not as_json:
        typer.echo(inert(f"document {document}"))
    for each in found:
        print_answer(dataclasses.asdict(each), _lines(each), as_json=as_json, indent=None)


def _lines(flip: Flip) -> Iterator[str]:
    side = f"{'IN' if flip.selected else 'out'} ({flip.reason})"
    if flip.representative is not None:
        by = flip.representative
        side = f"{ALIKE.get(by['why'], by['why'])} of {by['id']} of {by['crawl']}, which stands for it and is {side}"
    yield f"  {flip.release}/{flip.arm}, crawl {flip.crawl}: {side}"
    for line in flip.stale:
        yield f"    STALE: {line}"
    if flip.cannot is not None:
        yield f"    cannot be told: {flip.cannot}"
        return
    beside = "" if flip.held is None else f", beside {flip.held} held"
    yield f"    place {flip.rank} of {flip.competitors} documents for {flip.places} places{beside}"
    for turn in flip.turns:
        of = _of_added(turn.name, flip.added)
        yield f"    {turn.name} {turn.now:g}{of}: {_turn(turn, selected=flip.selected)}"


def _of_added(name: str, added: int | None) -> str:
    """What a budget is of, in a release that goes on from another; nothing in any other."""
    if added is None or name not in BUDGETS:
        return ""
    return f" of {added} new documents" if name == "ratio" else " to add"


def _turn(turn: Turn, *, selected: bool) -> str:
    if turn.cannot is not None:
        return turn.cannot
    goes = "goes out" if selected else "comes in"
    by_budget = turn.name in BUDGETS
    ends = [
        f"{'at' if by_budget else word} {_beyond(turn, end) if by_budget else format(end, '.6g')}"
        for word, end in (("below", turn.below), ("above", turn.above))
        if end is not None
    ]
    if not ends and turn.name == "ratio" and not selected:
        return "no ratio up to 1 takes it"
    if not ends:
        return "no value changes its side"
    note = "" if turn.kind == "exact" else " (first order)"
    return f"{goes} {' or '.join(ends)}{note}"


def _beyond(turn: Turn, end: float) -> str:
    """A budget that does it: whole, or a ratio of six digits that is rounded away from the present one."""
    if turn.name != "ratio":
        return f"{end:.0f}"
    rounding = ROUND_CEILING if end > turn.now else ROUND_FLOOR
    return f"{Context(prec=6, rounding=rounding).create_decimal_from_float(end).normalize():f}"
