"""Puts the subcommands together. Knows their names only."""

import inspect
from importlib.metadata import version
from typing import Annotated

import typer

from datamask_pipeline.cli import (
    audit,
    configs,
    experiment,
    look,
    metrics,
    plan,
    probe,
    purge,
    release,
    retire,
    run,
    select,
    sweep,
)
from datamask_pipeline.cli.damaged import TellsDamage

app = typer.Typer(
    name="datamask",
    cls=TellsDamage,
    help=(
        "Choose pre-training data for quality and diversity together, and say of every document why.\n\n"
        "Start with [bold]datamask run[/bold] (the whole chain on an embedded default), or with "
        "[bold]datamask select[/bold] (the learner alone, on a Parquet file of scores and embeddings). "
        "[bold]datamask probe[/bold] trains a quality score on your own labels. [bold]datamask audit why[/bold] tells "
        "a document's story; [bold]datamask look[/bold] shows selections and documents in a browser; "
        "[bold]datamask release[/bold] publishes a subset as a data set."
    ),
    epilog=(
        "Exit status: 0 done; 1 refused, with one line on standard error that names what is wrong and the remedy; "
        "2 an option or command that does not exist; 130 interrupted: call again, and it goes on where it was."
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _print_version(on: bool) -> None:
    if on:
        typer.echo(f"datamask-pipeline {version('datamask-pipeline')}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Options of the command itself."""


app.command("run")(run.run)
app.command("plan")(plan.plan)
app.command("report")(run.report)
app.command("select")(select.select)
app.command("probe")(probe.probe)
app.command("experiment")(experiment.experiment)
app.command("release")(release.release)
app.add_typer(look.app, name="look")
app.command("retire")(retire.retire)
app.command("metrics")(metrics.metrics)
app.command("purge")(purge.purge)
app.command("sweep")(sweep.sweep)
app.add_typer(audit.app, name="audit")
app.add_typer(configs.app, name="config")


def _let_the_terminal_break_lines(commands: typer.Typer) -> None:
    """Paragraphs of help are one line each; indented ones, the examples, stay as they are."""
    for command in commands.registered_commands:
        paragraphs = inspect.cleandoc(command.help or inspect.getdoc(command.callback) or "").split("\n\n")
        command.help = "\n\n".join(
            text if text.startswith((" ", "- ")) else text.replace("\n", " ") for text in paragraphs
        )
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            _let_the_terminal_break_lines(group.typer_instance)


_let_the_terminal_break_lines(app)
