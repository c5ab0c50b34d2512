"""`datamask audit prove`: is what stands in a record, or in a published data set, what it says it is?"""

import dataclasses
import json
from typing import Annotated

import typer
from rich.console import Console

from datamask_pipeline.audit.findings import exit_status
from datamask_pipeline.audit.prove import parse_target, prove_record
from datamask_pipeline.audit.prove_behind import prove_behind
from datamask_pipeline.audit.prove_data_set import is_data_set, prove_data_set
from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.storage.store import file_system_of


def prove(
    target: Annotated[
        str,
        typer.Argument(
            help="A release of the record (`first`), one arm of it (`first/datamask`), or the folder or URL of a data set."
        ),
    ],
    root: Annotated[
        str | None, typer.Option("--root", help="The root digest of a data set that was kept elsewhere.")
    ] = None,
    with_record: Annotated[
        bool,
        typer.Option(
            "--with-record", help="Prove also the record behind a data set, and that it makes these rows."
        ),
    ] = False,
    files_only: Annotated[
        bool,
        typer.Option(
            "--files-only", help="Hash files, and compute no join, count or figure again from its inputs."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a finding, one a line.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Hash every file anew, compute joins, counts and a selection's figures again, and name what contradicts.

    Findings name file and, where one can be told, row. Needs no Dagster and learns nothing again. Exit status 0: all is
    as it says; 1: something contradicts; 2: nothing does, and something cannot be told.

    Example:

        datamask audit prove fineweb-mask --root 4ad1...
    """
    fs, path = file_system_of(target, {}, setting="target")
    with Console(stderr=True).status("proving"):
        if is_data_set(fs, path.rstrip("/")):
            findings = list(prove_data_set(fs, path.rstrip("/"), root))
            if with_record and not findings:
                store = build_pipeline(config, settings).store
                findings = list(prove_behind(store, fs, path.rstrip("/"), files_only=files_only))
        else:
            release, arm = parse_target(target)
            store = build_pipeline(config, settings).store
            findings = list(prove_record(store, release, arm, files_only=files_only))
    for finding in findings:
        typer.echo(json.dumps(dataclasses.asdict(finding)) if as_json else finding.line())
    status = exit_status(findings)
    if not as_json:
        verdicts = (
            "proved: all is as it says",
            "not proved: something contradicts",
            "not proved: not all can be told",
        )
        typer.echo(verdicts[status])
    raise typer.Exit(status)
