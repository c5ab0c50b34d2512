"""`datamask audit contamination`: documents of a release that hold pieces of its evaluation questions."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.compliance.contamination import contamination as contamination_of
from datamask_pipeline.printable import inert
from datamask_pipeline.storage import storage_errors


def contamination(
    release: Annotated[str, typer.Argument(help="The release, e.g. `first`; it needs its question sets.")],
    ngram: Annotated[
        int, typer.Option("--ngram", min=1, help="Words in a row that have to be equal; 13 and 8 are usual.")
    ] = 13,
    list_file: Annotated[
        Path | None,
        typer.Option("--list", help="Write the documents hit here, as a list for `pool.takedown`."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The counts as one JSON object.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Find documents that share words with the evaluation questions, before anything is trained on them.

    Needs candidates and questions (`datamask run --until questions`), no selection and no model. Nothing is left out by it:
    give its list to the release, which leaves the documents out of every arm.

    Example:

        datamask audit contamination first --list hit.txt && datamask run -s 'pool.takedown=\\[file:hit.txt]'
    """
    store = build_pipeline(config, settings).store
    with Console(stderr=True).status("comparing"):
        found, hit = contamination_of(store, release, ngram=ngram)
    if list_file is not None:
        with storage_errors(str(list_file)):
            list_file.write_text("".join(f"id:{name}\n" for name in hit), encoding="utf-8")
    if as_json:
        typer.echo(inert(json.dumps(found, ensure_ascii=False, indent=1), keep="\n"))
    else:
        typer.echo("\n".join(map(inert, _lines(found))))


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"release {found['release']}: {found['documents_hit']:,} of {found['documents']:,} eligible documents share "
        f"{found['ngram']} words in a row with a question"
    )
    for task, of in found["tasks"].items():
        short = f", {of['too_short']} too short to tell" if of["too_short"] else ""
        yield f"  {task}: {of['questions_hit']} of {of['questions']} questions in {of['documents_hit']} documents{short}"
        for example in of["examples"]:
            yield f"    {example['document']}, question {example['question']}: {example['words']}"
