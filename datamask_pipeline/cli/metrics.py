"""`datamask metrics`: what a dashboard reads."""

import typer

from datamask_pipeline.audit.metrics import metrics_lines
from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline


def metrics(config: ConfigOption = None, settings: SetOption = None) -> None:
    """Print rows, seconds, dates and rows left out of every current artefact, as Prometheus reads them from a text file.

    Nothing is computed or written. What fails prints nothing, and `mv` leaves the file as it was.

    Example:

        datamask metrics > /tmp/new.prom && mv /tmp/new.prom /var/lib/node_exporter/datamask.prom
    """
    store = build_pipeline(config, settings).store
    store.refuse_missing()
    for line in metrics_lines(store):
        typer.echo(line)
