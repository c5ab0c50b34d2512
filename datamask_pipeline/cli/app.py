"""Puts the subcommands together. Knows their names only."""

import typer

from datamask_pipeline.cli import audit, configs, probe, run, select

app = typer.Typer(
    name="datamask",
    help=(
        "Choose pre-training data for quality and diversity together, and say of every document why.\n\n"
        "Start with [bold]datamask run[/bold] (the whole chain on an embedded default), or with "
        "[bold]datamask select[/bold] (the learner alone, on a Parquet file of scores and embeddings). "
        "[bold]datamask probe[/bold] trains a quality score on your own labels."
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command("run")(run.run)
app.command("report")(run.report)
app.command("select")(select.select)
app.command("probe")(probe.probe)
app.add_typer(audit.app, name="audit")
app.add_typer(configs.app, name="config")
