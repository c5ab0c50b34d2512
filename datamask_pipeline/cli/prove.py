"""`datamask audit prove`: is what stands in a record, or in a published data set, what it says it is?"""

import dataclasses
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from datamask_pipeline.audit.findings import Finding, contradiction, exit_status
from datamask_pipeline.audit.prove import parse_target, prove_record, root_of_record
from datamask_pipeline.audit.prove_behind import prove_behind
from datamask_pipeline.audit.prove_data_set import is_data_set, prove_data_set
from datamask_pipeline.audit.verdict import verdict
from datamask_pipeline.cli.answers import print_answer
from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.cli.terminal import plain_console
from datamask_pipeline.errors import ConfigurationError, UnknownNameError
from datamask_pipeline.printable import inert
from datamask_pipeline.publish.manifest import NAME
from datamask_pipeline.publish.sign import signature_of, signature_problem
from datamask_pipeline.storage import storage_errors
from datamask_pipeline.storage.reaching import file_system_of, reaching
from datamask_pipeline.storage.ref import pretty_json


def prove(
    target: Annotated[
        str,
        typer.Argument(
            help="A release of the record (`first`), one arm of it (`first/datamask`), or the folder or URL of a data set. "
            "A URL of the record's own scheme is opened with its `storage_options`."
        ),
    ],
    root: Annotated[
        str | None,
        typer.Option(
            "--root", help="The root digest that was kept elsewhere, of a data set or of the record."
        ),
    ] = None,
    print_root: Annotated[
        bool,
        typer.Option(
            "--print-root",
            help="Print the root digest of what stands in the record, to be kept elsewhere, and prove nothing.",
        ),
    ] = False,
    public_key: Annotated[
        Path | None, typer.Option("--public-key", help="Check the data set's signature by this key (PEM).")
    ] = None,
    signature: Annotated[
        Path | None,
        typer.Option("--signature", help="The signature; by default FOLDER.sig beside the data set."),
    ] = None,
    with_record: Annotated[
        bool,
        typer.Option(
            "--with-record",
            help="Prove also the record behind a data set, and that it makes it: rows, columns, lineage, licences, figures.",
        ),
    ] = False,
    files_only: Annotated[
        bool,
        typer.Option(
            "--files-only", help="Hash files, and compute no join, count or figure again from its inputs."
        ),
    ] = False,
    verdict_file: Annotated[
        Path | None,
        typer.Option(
            "--verdict",
            help="Where a data set was proved, write that here as an in-toto verification result.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The result as one JSON object.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Hash every file anew, compute joins, counts and a selection's figures again, and name what contradicts.

    Findings name file and, where one can be told, row. Needs no Dagster and learns nothing again. Exit status 0: all is
    as it says; 1: something contradicts; 2: nothing does, and something cannot be told; 3: a part was purged by request
    (`datamask purge`), and all else is as it says.

    Example:

        datamask audit prove fineweb-mask --root 4ad1...
    """
    if root is not None and not re.fullmatch("[0-9a-fA-F]{64}", root):
        raise ConfigurationError(f"--root: {root!r} is no root digest, which has 64 hexadecimal digits")
    if signature is not None and public_key is None:
        raise ConfigurationError(
            f"--signature: {signature} is checked by a key alone; name it, --public-key KEY.pub"
        )
    store = build_pipeline(config, settings).store
    fs, path = file_system_of(target, store.options_for(target), setting="target")
    path = path.rstrip("/")
    proved: dict[str, list[Finding]] = {}
    with plain_console(stderr=True).status("proving"):
        with reaching(fs, target):
            stands_there = is_data_set(fs, path)
        if stands_there:
            if print_root:
                raise ConfigurationError(
                    f"--print-root: {target} is a data set; its root digest stands in {NAME}"
                )
            if with_record:
                store.refuse_missing()
            with reaching(fs, target):
                proved["DATAMASK_FILES"] = list(prove_data_set(fs, path, root and root.lower()))
            if root is not None:
                proved["DATAMASK_ROOT"] = []
            if public_key is not None:
                proved["DATAMASK_SIGNATURE"] = _signature_findings(Path(path), public_key, signature)
            if with_record and not any(proved.values()):
                proved["DATAMASK_RECORD"] = list(prove_behind(store, fs, path, files_only=files_only))
        else:
            _refuse_options_of_data_sets(target, public_key, with_record, verdict_file)
            try:
                release, arm = parse_target(target)
                if print_root:
                    typer.echo(root_of_record(store, release, arm))
                    return
                found = prove_record(store, release, arm, files_only=files_only, root=root and root.lower())
                proved["record"] = list(found)
            except ConfigurationError as error:
                if isinstance(error, UnknownNameError) and not fs.exists(path):
                    raise ConfigurationError(
                        f"there is no folder {target}, and in the record: {error}"
                    ) from error
                if fs.isfile(path):
                    raise ConfigurationError(
                        f"{target} is a file; name the folder of a data set, a release of the record, or one arm of it"
                    ) from error
                if not fs.isdir(path):
                    raise
                problem = f"is missing in folder {target}, which is no release of the record either ({error})"
                proved["record"] = [contradiction(NAME, problem)]
    findings = [finding for found in proved.values() for finding in found]
    status = exit_status(findings)
    unchecked = _unchecked_signature(fs, path, target) if stands_there and public_key is None else None
    if as_json:
        found_all = [dataclasses.asdict(finding) for finding in findings]
        answer = {
            "status": status,
            "proved": list(proved),
            "findings": found_all,
            "unchecked_signature": unchecked,
        }
        print_answer(answer, (), as_json=True)
    else:
        for finding in findings:
            typer.echo(inert(finding.line()))
        verdicts = (
            "proved: all is as it says",
            "not proved: something contradicts",
            "not proved: not all can be told",
            "not proved as a whole: a part was purged on request, and what is left is as it says",
        )
        typer.echo(verdicts[status])
        if unchecked is not None:
            typer.echo(inert(f"signature {unchecked} was not checked; --public-key KEY.pub checks it"))
    if status == 0 and verdict_file is not None:
        with storage_errors(str(verdict_file), "--verdict"):
            verdict_file.write_text(pretty_json(verdict(fs, path, list(proved))), encoding="utf-8")
    raise typer.Exit(status)


def _unchecked_signature(fs: Any, path: str, target: str) -> str | None:
    """The signature beside a data set; ``None`` where there is none."""
    if "://" in target:
        return f"{target.rstrip('/')}.sig" if fs.exists(f"{path}.sig") else None
    file = signature_of(Path(target))
    return file.as_posix() if file.exists() else None


def _signature_findings(folder: Path, public_key: Path, signature: Path | None) -> list[Finding]:
    if not folder.is_dir():
        raise ConfigurationError(
            f"--public-key: {folder} is no folder on this machine; copy the data set here"
        )
    file = signature or signature_of(folder)
    problem = signature_problem(folder, public_key, file)
    return [] if problem is None else [contradiction(file.name, problem)]


def _refuse_options_of_data_sets(target: str, *given: Any) -> None:
    if any(given):
        raise ConfigurationError(
            f"{target!r} is no data set: --public-key, --with-record and --verdict are for the folder of one"
        )
