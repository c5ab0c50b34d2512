"""`datamask plan`: what a release takes, by stage, before anything runs."""

from typing import Annotated, Final

import typer

from datamask_pipeline.cli.options import ConfigOption, ReleaseOption, SetOption, build_pipeline, releases_of
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.hardware import num_cores
from datamask_pipeline.pipeline.check import refuse_missing_crawls
from datamask_pipeline.pipeline.estimate import documents_before
from datamask_pipeline.pipeline.planning import Machines, planned, told
from datamask_pipeline.printable import inert

MOST: Final = 1e15
"""Of anything that is asked for: more than there is, and a number that can be printed."""


def plan(
    config: ConfigOption = None,
    settings: SetOption = None,
    release: ReleaseOption = None,
    documents: Annotated[
        float | None,
        typer.Option(
            "--documents",
            min=1,
            max=MOST,
            help="As if the release had so many, e.g. 26e9; else those of its crawls, or, before they are read, the "
            "rows that Parquet files state.",
        ),
    ] = None,
    machines: Annotated[int, typer.Option("--machines", min=1, help="Machines that share the record.")] = 1,
    cores: Annotated[
        int | None, typer.Option("--cores", min=1, help="Of each machine; by default as many as here.")
    ] = None,
    price: Annotated[
        float, typer.Option("--price-per-hour", min=0, max=MOST, help="Of one machine, in any currency.")
    ] = 0.0,
    text_bytes: Annotated[
        float, typer.Option("--text-bytes", min=1, max=MOST, help="Of a document's text, before compression.")
    ] = 2_000,
    until: Annotated[
        str | None, typer.Option("--until", metavar="STAGE", help="Only this stage and those it needs.")
    ] = None,
) -> None:
    """Tell documents, bytes, memory, hours and money of a release by stage, and what dominates; writes nothing.

    Seconds a document are those of this record where it has made such an artefact, else those of a benchmark on two
    cores without a GPU, which the last column names. Shards are shared among machines, all else is done by one. What nobody
    measured is told as `?`.

    Examples:

        datamask plan

        datamask plan --documents 26e9 --machines 100 --cores 64 --price-per-hour 2.5
    """
    pipeline = build_pipeline(config, settings)
    on = Machines(machines, cores or num_cores(), price)
    configured = pipeline.config.releases.get(release or "")
    if release is not None and (configured is None or configured.every is None):
        pipeline.planned_crawls(release)  # refuses one that nobody asked for
    names = [release or "-"] if documents is not None else releases_of(pipeline, release, new=True)
    if documents is None:
        refuse_missing_crawls(pipeline.source, {name: pipeline.planned_crawls(name) for name in names})
    for name in names:
        number, unread = documents, ""
        if number is None:
            number, unread = documents_before(pipeline, pipeline.planned_crawls(name))
        if number is None:
            raise ConfigurationError(
                f"no crawl of release {name} was read yet, and its files do not state their rows: say how many "
                "documents with --documents"
            )
        if unread:
            typer.echo(inert(f"{name}: {unread}"))
        if len(names) > 1:
            typer.echo(inert(f"release {name}, with crawls that others have too:"))
        rows = planned(pipeline, number, on, text_bytes=text_bytes, until=until)
        for line in told(rows, number, on):
            typer.echo(inert(line))
