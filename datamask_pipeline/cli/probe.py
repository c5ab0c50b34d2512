"""`datamask probe`: train the quality probe on labelled examples and say how good it is. Knows no crawl."""

from typing import Annotated, Any

import typer

from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.cli.progress import followed
from datamask_pipeline.cli.terminal import plain_console
from datamask_pipeline.errors import ConfigurationError


def probe(
    examples: Annotated[
        str | None, typer.Argument(help="Parquet or JSON Lines of labelled texts; else the configured ones.")
    ] = None,
    text_column: Annotated[str | None, typer.Option(help="The examples' column of texts.")] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Their column of labels: numbers or booleans, higher is better.")
    ] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Train the quality probe on labelled examples, and print how well it does on held-out ones.

    The probe stays in the record; a run with the same options scores its documents by it.

    Examples:

        datamask probe labels.parquet --label-column good

        datamask run -s score.options.probe.examples=labels.parquet \\
          -s score.options.probe.label_column=good \\
          -s 'score.scorers=\\[rules, probe]'
    """
    from datamask_pipeline.families import SCORERS
    from datamask_pipeline.stages.probe import held_out_line, run, space_of_encoder

    with followed(plain_console(stderr=True)) as progress:
        pipeline = build_pipeline(config, settings)
        pipeline.store.reach()
        if pipeline.config.embed.imported_file:
            raise ConfigurationError(
                "the embeddings are imported; run the chain until `score`, where the probe meets their vectors"
            )
        given = {"examples": examples, "text_column": text_column, "label_column": label_column}
        options: dict[str, Any] = dict(pipeline.config.score.options.get("probe", {}))
        options |= {name: value for name, value in given.items() if value is not None}
        scorer: Any = SCORERS.make("probe", options, "score.options.probe")
        ref = run(
            scorer,
            store=pipeline.store,
            space=space_of_encoder(pipeline.config.embed.encoder_config()),
            progress=progress,
        )
    typer.echo(held_out_line(pipeline.store.manifest(ref)["metadata"]))
    typer.echo(f"kept at {pipeline.store.address(ref.location)}/")
