"""`datamask look`: selections and documents in a browser. Knows options; knows no page."""

from pathlib import Path
from typing import Annotated

import typer

from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.cli.terminal import plain_console
from datamask_pipeline.printable import inert

app = typer.Typer(invoke_without_command=True)


@app.callback()
def look(
    context: typer.Context,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            help="Name or address of this machine to answer at. Whoever reaches it can read every text.",
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port; 0 takes a free one.")] = 0,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Look at documents in a browser, or at a selection as one page (`datamask look page`).

    The browser shows what was kept, dropped, borderline or copied, and the rejected rows, with texts, numbers, reasons and
    the nearest chosen documents; it filters, searches and samples. It answers on this machine alone, uses no script, and
    never writes to the record. Ctrl-C ends it.

    Examples:

        datamask look -s store=record

        datamask look page demo/datamask --to demo.html
    """
    if context.invoked_subcommand is not None:
        return
    from datamask_pipeline.look.serve import is_loopback, serve

    store = build_pipeline(config, settings).store
    if not is_loopback(host):
        typer.echo(f"warning: whoever reaches {inert(host)} can read every text of this record", err=True)
    serve(store, host, port, typer.echo)


@app.command("page")
def page(
    target: Annotated[
        str, typer.Argument(metavar="RELEASE[/ARM]", help="A selection, e.g. `demo/datamask`.")
    ],
    to: Annotated[Path, typer.Option("--to", help="The HTML file to write.")],
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Write one self-contained page about a selection.

    It shows every arm by quality and diversity with the certified bound, the learning curve, what changed in quality,
    length, domain, language and crawl, the overlap of arms, copies, a map of the embeddings and the funnel. It needs no
    network and no script, and its size does not grow with the documents.

    Example:

        datamask look page demo/datamask --to demo.html
    """
    from datamask_pipeline.look.page import write_page

    release, _, arm = target.partition("/")
    store = build_pipeline(config, settings).store
    store.refuse_missing()
    with plain_console(stderr=True).status("reading the record") as status:
        place = write_page(store, release, arm or None, to, progress=lambda what: status.update(what))
    typer.echo(inert(f"{place} ({place.stat().st_size:,} bytes)"))
