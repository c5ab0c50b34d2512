"""`datamask experiment`: arms compared on many draws of a collection, by the n-gram ruler."""

from pathlib import Path
from typing import Annotated

import typer

from datamask_pipeline.cli.progress import followed
from datamask_pipeline.cli.terminal import plain_console
from datamask_pipeline.printable import inert


def experiment(
    file: Annotated[Path, typer.Argument(help="The experiment's YAML file, e.g. experiments/ngram.yaml.")],
    data: Annotated[Path, typer.Option(help="The folder that ${data} stands for in that file.")],
    store: Annotated[
        str | None, typer.Option(help="Root of the record; by default what the file's `chain.store` says.")
    ] = None,
    pool: Annotated[
        list[str] | None, typer.Option(help="Only this pool of the file; by default all. Repeatable.")
    ] = None,
    draw: Annotated[
        list[int] | None,
        typer.Option(help="Measure this draw alone and judge nothing; by default all. Repeatable.", min=0),
    ] = None,
    kept: Annotated[
        Path | None,
        typer.Option(
            help="Folder of what trained networks found, a few kilobytes each: read where it fits, written otherwise. "
            "Carry it to another machine, or commit it."
        ),
    ] = None,
    to: Annotated[Path, typer.Option(help="Folder that the report and its plot are written to.")] = Path("."),
) -> None:
    """Compare ways of choosing documents on many draws of a collection, without training a network unless it asks for one.

    Every draw takes half of the collection; every arm chooses from it, a trigram model learns from equally many of its
    tokens, and is asked for right answers and held-out documents. The report holds aggregates alone: no text, no id.

    Draws lie in the record: what was measured is not measured again, and a killed run goes on where it was. Where networks
    are trained, several machines can share the draws: give each some of them with --draw, all the same files of --kept in
    the end, and one of them the command without --draw.

    Examples:

        datamask experiment experiments/ngram.yaml --data DATA --to report

        datamask experiment experiments/proxy.yaml --data DATA --kept kept --draw 0 --draw 1   # this machine's share

        datamask experiment experiments/proxy.yaml --data DATA --kept kept --to report   # with the files of all
    """
    from datamask_pipeline.experiment.config import load_experiment
    from datamask_pipeline.experiment.report import conclusion, write_report
    from datamask_pipeline.experiment.report_sweep import recommendation
    from datamask_pipeline.experiment.run import (
        make_shared,
        measure_draws,
        refuse_unwritable,
        run_experiment,
    )
    from datamask_pipeline.pipeline import Pipeline

    config, chain = load_experiment(file, data, pool or ())
    draws = config.draws(draw or ())
    refuse_unwritable(to=None if draw else to, kept=kept)
    if store is not None:
        chain = chain.model_copy(update={"store": store})
    with followed(plain_console(stderr=True), ends=True) as progress:
        pipeline = Pipeline(chain, progress=progress)
        make_shared(config, pipeline, progress, lambda line: typer.echo(inert(line), err=True))
        if draw:
            for name in config.pools:
                measure_draws(config, pipeline, name, draws, progress, kept=kept)
            verdicts = {}
        else:
            verdicts = run_experiment(config, pipeline, progress, kept=kept)
    if draw:
        measured = ", ".join(map(str, draws))
        typer.echo(f"measured: draws {measured}; once all are, the same command without --draw judges them")
        return
    written = write_report(to, config, verdicts)
    for name, verdict in verdicts.items():
        typer.echo(f"pool {name}: {conclusion(config, verdict)}")
        if verdict.recommendation is not None:
            typer.echo(f"pool {name}: {recommendation(config, verdict)}")
    for path in written:
        typer.echo(f"written: {path}")
