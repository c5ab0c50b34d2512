"""`datamask sweep`: removes superseded versions that nothing standing refers to, and work that was given up."""

from typing import Annotated

import typer

from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.compliance.retention import DAYS, MOST_DAYS, Leftover, forget, leftovers
from datamask_pipeline.printable import inert


def sweep(
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove what is told; without it nothing is written.")
    ] = False,
    days: Annotated[
        float,
        typer.Option(
            "--days", min=0.0, max=MOST_DAYS, help="How long what is superseded or unfinished stays."
        ),
    ] = DAYS,
    models: Annotated[
        bool, typer.Option("--models", help="Take superseded models too, and what only these were made from.")
    ] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Tell what of the record nobody refers to any more, and remove it with `--remove`.

    Current versions stay, those of retired releases too, and all that they were made from, however many steps before; so do
    superseded models unless `--models`. It is no withdrawal: what holds a document that has to go, `datamask purge` finds.
    Nor does it try settings: that is `datamask experiment` with a `grid` in its file.

    Examples:

        datamask sweep

        datamask sweep --days 90 --remove
    """
    store = build_pipeline(config, settings).store
    store.refuse_missing()
    found = leftovers(store, days=days, with_models=models)
    done, num_bytes = ("removed", 0) if remove else ("would remove", 0)
    number = 0
    for each in forget(store, found) if remove else found:
        number, num_bytes = number + 1, num_bytes + each.num_bytes
        typer.echo(inert(line(each, done)))
    typer.echo(f"{done} {number} versions, {num_bytes:,} bytes")


def line(each: Leftover, done: str) -> str:
    """What is told of one leftover."""
    what = "unfinished " if each.is_unfinished else ""
    return f"{done} {what}{each.location}: {each.num_bytes:,} bytes"
