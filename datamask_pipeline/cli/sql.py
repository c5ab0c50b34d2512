"""`datamask audit sql`: views for DuckDB over what is current in a record."""

from pathlib import Path
from typing import Annotated

import typer

from datamask_pipeline.audit.views import views
from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
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
    text = views(build_pipeline(config, settings).store)
    if file is None:
        typer.echo(text, nl=False)
    else:
        with storage_errors(str(file)):
            file.write_text(text, encoding="utf-8")
