"""`datamask retire`: of a release nothing is made any more."""

from typing import Annotated

import typer

from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.printable import inert
from datamask_pipeline.storage import releases


def retire(
    release: Annotated[str, typer.Argument(help="The release, e.g. `first`.")],
    undo: Annotated[bool, typer.Option("--undo", help="Make things of it again.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Retire a release: the sensor asks for nothing of it any more, though a setting or a crawl changes.

    Nothing is deleted: its subsets, models and results stay, `datamask audit` answers, and later releases go on from it.

    Example:

        datamask retire first
    """
    store = build_pipeline(config, settings).store
    releases.retire(store, release, retired=not undo)
    typer.echo(inert(f"release {release} is {'in use again' if undo else 'retired'}"))
