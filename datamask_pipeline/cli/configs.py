"""`datamask config`: the configurations that come with the package, and checks of one's own."""

from collections.abc import Iterator
from typing import Annotated

import typer

from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.errors import UnknownNameError
from datamask_pipeline.pipeline.config import PipelineConfig, packaged_configs
from datamask_pipeline.pipeline.crew import idle_engine
from datamask_pipeline.pipeline.describe import described
from datamask_pipeline.pipeline.held_against import not_held_against
from datamask_pipeline.pipeline.order import told
from datamask_pipeline.pipeline.positions import beyond_training
from datamask_pipeline.printable import inert
from datamask_pipeline.stages.compare import USUAL_BASELINE, baseline_among

app = typer.Typer(help="List, show and check configurations.", no_args_is_help=True)


@app.command("list")
def list_configs() -> None:
    """Name the packaged configurations, each with its first comment line."""
    for name, text in packaged_configs().items():
        first = text.splitlines()[0].lstrip("# ")
        typer.echo(f"{name:<12}{first}")


@app.command("show")
def show(name: Annotated[str, typer.Argument(help="A packaged configuration.")] = "demo") -> None:
    """Print a packaged configuration, to be copied and changed."""
    configs = packaged_configs()
    if name not in configs:
        raise UnknownNameError("packaged configuration", name, configs)
    typer.echo(configs[name])


@app.command("check")
def check(
    config: ConfigOption = None,
    settings: SetOption = None,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", help="Leave out the settings: print the comments, and that all is well."
        ),
    ] = False,
) -> None:
    """Refuse all that a run would refuse before its work, and print every setting with its default and its meaning.

    Comments below tell which crawls each release has or will have, and what to be careful with.
    """
    pipeline = build_pipeline(config, settings)
    pipeline.check()
    for line in () if quiet else described(pipeline.config):
        typer.echo(line)
    told_of = pipeline.config
    lines = (
        *told(pipeline),
        *idle_engine(told_of),
        *_first_as_baseline(told_of),
        *_asks_them_all(told_of),
        *not_held_against(told_of),
        *beyond_training(told_of),
    )
    for line in lines:
        typer.echo(f"# {inert(line)}")
    if quiet:
        typer.echo(
            "the configuration is sound; a run may still refuse what it finds in the documents: files after the first of a "
            "crawl, or too few documents for a budget or quota"
        )


def _asks_them_all(config: PipelineConfig) -> Iterator[str]:
    """A line where no task is named in so many words, by which some would mean that none is asked."""
    if "tasks" in config.evaluate.model_fields_set and not config.evaluate.tasks:
        yield (
            "evaluate.tasks names no task, so the paper's twelve are asked; a run without evaluation is "
            "`datamask run --until pretrain`"
        )


def _first_as_baseline(config: PipelineConfig) -> Iterator[str]:
    """A line where arms are compared with one that the configuration does not name for that."""
    taken = baseline_among(config.compare, config.arms)
    if config.compare.baseline is None and taken != USUAL_BASELINE and len(config.arms) > 1:
        yield (
            f"arms are compared with {taken}, the first one, as none is called {USUAL_BASELINE}; compare.baseline names "
            "another"
        )
