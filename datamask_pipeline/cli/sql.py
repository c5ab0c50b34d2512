"""`datamask audit sql`: views for DuckDB over what is current in a record."""

from pathlib import Path
from typing import Annotated

import typer

from datamask_pipeline.audit.left_over import left_over
from datamask_pipeline.audit.views import views
from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline, is_configured
from datamask_pipeline.pipeline.order import masks_made
from datamask_pipeline.printable import inert
from datamask_pipeline.storage import storage_errors


def sql(
    file: Annotated[
        Path | None, typer.Option("--file", help="Write the SQL here instead of printing it.")
    ] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Print SQL that makes a view of each asset's current artefacts, and `artefacts`, `decisions` and `funnel`.

    A glob over the record's files counts superseded artefacts too; these views do not. Make them again after a run.

    Example:

        datamask audit sql --file views.sql && duckdb -init views.sql -c 'FROM funnel'
    """
    pipeline = build_pipeline(config, settings)
    left = left_over(pipeline.store, masks_made(pipeline) if is_configured(config, settings) else None)
    text = views(pipeline.store, left)
    if file is None:
        typer.echo(text, nl=False)
    else:
        with storage_errors(str(file), "--file"):
            file.write_text(text, encoding="utf-8")
    for line in left.values():
        typer.echo(inert(line), err=True)
