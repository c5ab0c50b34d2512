"""`datamask audit external`: what is in somebody else's subset?"""

from pathlib import Path
from typing import Annotated

import typer

from datamask_pipeline.audit.external import MINHASH_TEXTS, ExternalOptions, audit_external
from datamask_pipeline.audit.external_lines import report_lines
from datamask_pipeline.cli.answers import print_answer
from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.cli.progress import followed
from datamask_pipeline.cli.terminal import plain_console


def external(
    target: Annotated[
        str,
        typer.Argument(
            help="A Parquet or JSON Lines file, a folder of such, or OWNER/NAME of a data set of the hub."
        ),
    ],
    against: Annotated[
        str,
        typer.Option(
            "--against", help="A release or crawl of the record, or a folder of documents (files as above)."
        ),
    ],
    arm: Annotated[
        str | None,
        typer.Option(
            "--arm", help="Compare with this arm of the release: objective, bound, random, top-k, ours."
        ),
    ] = None,
    revision: Annotated[
        str | None,
        typer.Option("--revision", help="Commit of a data set of the hub (40 hexadecimal digits)."),
    ] = None,
    id_column: Annotated[
        str | None, typer.Option("--id-column", help="The column of ids; `id` by default, if there is one.")
    ] = None,
    text_column: Annotated[
        str | None,
        typer.Option(
            "--text-column", help="The column of texts; `text` or `content` by default, if there is one."
        ),
    ] = None,
    licence_column: Annotated[
        str | None,
        typer.Option("--license-column", help="The column of each row's licence; `license` by default."),
    ] = None,
    source_licence: Annotated[
        str | None,
        typer.Option(
            "--source-license",
            help="Licence of what it was taken from, e.g. odc-by; by default `source.license`. A licence that this forbids "
            "is told.",
        ),
    ] = None,
    minhash: Annotated[
        bool | None,
        typer.Option(
            "--minhash/--no-minhash",
            help=f"Seek near-duplicates among its texts, with 7 kB of memory a distinct text; by default up to "
            f"{MINHASH_TEXTS:,} texts.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Write what was found of every row here: Parquet (.parquet) or JSON Lines (.jsonl)."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The whole report as one JSON object.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Audit somebody else's subset: rows found and not found, copies, altered texts, licence, quality, objective.

    Rows are found by id, or else by content (white space and Unicode composition aside): rows = found by id + found by
    content + not found + unreadable. Nothing of the record is changed.

    Examples:

        datamask audit external subset/ --against first --arm datamask --source-license odc-by

        datamask audit external openbmb/Ultra-FineWeb --revision COMMIT --against crawls/ --json
    """
    pipeline = build_pipeline(config, settings)
    options = ExternalOptions(
        revision=revision,
        columns={"id": id_column, "text": text_column, "licence": licence_column},
        source_licence=source_licence or pipeline.config.source.license,
        minhash=minhash,
        arm=arm,
        out=out,
    )
    with followed(plain_console(stderr=True)) as progress:
        report = audit_external(pipeline.store, target, against, options, progress)
    print_answer(report, report_lines(report), as_json=as_json)
