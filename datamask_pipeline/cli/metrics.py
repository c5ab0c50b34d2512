"""`datamask metrics`: what a dashboard reads."""

import typer

from datamask_pipeline.audit.metrics import metrics_lines
from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline


def metrics(config: ConfigOption = None, settings: SetOption = None) -> None:
    """Print rows, seconds, dates and rows left out of every current artefact, as Prometheus reads them from a text file.

    Nothing is computed or written.

    Example:

        datamask metrics > /var/lib/node_exporter/datamask.prom
    """
    for line in metrics_lines(build_pipeline(config, settings).store):
        typer.echo(line)
