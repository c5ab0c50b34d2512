"""`datamask audit status`: what of a record is stale?"""

from typing import Annotated, Final

import typer

from datamask_pipeline.audit.status import status as status_of
from datamask_pipeline.audit.status import status_lines
from datamask_pipeline.cli.answers import print_answer
from datamask_pipeline.cli.options import (
    ConfigOption,
    ReleaseOption,
    SetOption,
    build_pipeline,
    releases_of,
)
from datamask_pipeline.cli.terminal import plain_console

STALE: Final = 3


def status(
    release: ReleaseOption = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="STAGE",
            help="Look at only this stage and those it needs, as `run --until` makes only these.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Print what a run would compute, why and for about how long, and which artefacts stand on something superseded.

    A release that a run would refuse, as one with a crawl that is not there or cannot be read, is told, and the others are
    looked at.

    Nothing is computed or written. Exit status 0: all is current; 3: something is stale or not there yet.

    Example:

        datamask audit status -c my.yaml

        datamask audit status -c my.yaml --until materialise
    """
    forecast = build_pipeline(config, settings).looked_at()
    forecast.store.refuse_missing()
    wanted = releases_of(forecast, release, new=True)
    with plain_console(stderr=True).status("comparing"):
        found = status_of(forecast, wanted, until)
    print_answer(found, status_lines(found), as_json=as_json)
    raise typer.Exit(0 if found["is_current"] else STALE)
