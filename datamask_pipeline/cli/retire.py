"""`datamask retire`: of a release nothing is made any more."""

from typing import Annotated

import typer

from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import Pipeline
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
    pipeline = build_pipeline(config, settings)
    pipeline.store.refuse_missing()
    _refuse_rolling(pipeline, release)
    releases.retire(pipeline.store, release, retired=not undo)
    typer.echo(inert(f"release {release} is {'in use again' if undo else 'retired'}"))


def _refuse_rolling(pipeline: Pipeline, release: str) -> None:
    """Refuse an entry of the configuration that makes releases, and say which ones it has made."""
    configured = pipeline.config.releases.get(release)
    if configured is None or configured.every is None:
        return
    made = ", ".join(name for name, _ in releases.rolled(pipeline.store, release)) or "none yet"
    raise ConfigurationError(
        f"release {release!r} makes releases and is none itself; so far: {made}. Name one of these; take releases.{release} "
        "out of the configuration to have no more made"
    )
