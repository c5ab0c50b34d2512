"""`datamask audit training-content`: the facts for a public summary of training content."""

import json
from typing import Annotated

import typer

from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.cli.terminal import plain_console
from datamask_pipeline.compliance.training_content import training_content as content_of
from datamask_pipeline.compliance.training_content_markdown import as_markdown
from datamask_pipeline.printable import inert


def training_content(
    release: Annotated[str, typer.Argument(help="The release, e.g. `first`.")],
    arm: Annotated[
        str | None, typer.Option("--arm", help="The arm whose subset it is; needed where there are several.")
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(
            "--version",
            help="An earlier version of the subset by its first digits, e.g. what a model was trained on; of a purged one "
            "the numbers that its tombstone keeps.",
        ),
    ] = None,
    small: Annotated[
        bool, typer.Option("--small", help="List the domains that a small or medium-sized provider has to.")
    ] = False,
    source_licence: Annotated[
        str | None,
        typer.Option("--source-license", help="Licence of the source; by default `source.license`."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of Markdown.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Print the facts of a subset for the EU's public summary of training content.

    Registrable domains by share of bytes (the largest 10 %), period of collection, source, licence, modality and size band,
    and what was withdrawn. What only the provider knows, e.g. its name and other data, is added by hand.

    Example:

        datamask audit training-content first --arm datamask > summary.md
    """
    pipeline = build_pipeline(config, settings)
    pipeline.store.refuse_missing()
    with plain_console(stderr=True).status("reading the record"):
        licence = source_licence or pipeline.config.source.license
        found = content_of(pipeline.store, release, arm, version=version, small=small, licence=licence)
    if as_json:
        typer.echo(inert(json.dumps(found, ensure_ascii=False, indent=1), keep="\n"))
    else:
        typer.echo(as_markdown(found), nl=False)
