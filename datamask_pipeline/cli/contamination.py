"""`datamask audit contamination`: documents of a release that hold pieces of its evaluation questions."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from datamask_pipeline.cli.answers import print_answer
from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.cli.terminal import plain_console
from datamask_pipeline.compliance.contamination import contamination as contamination_of
from datamask_pipeline.schema import CURATED
from datamask_pipeline.stages.takedown_entries import entry_of
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
    """Find documents that share words with evaluation questions or curated documents, before anything is trained on them.

    Needs candidates and questions (`datamask run --until questions`), no selection and no model. Nothing is left out by it:
    give its list to the release, which leaves the documents out of every arm. For questions and curated documents from files
    of your own the pool does so itself, where `pool.decontaminate` names them.

    Example:

        datamask audit contamination first --list hit.txt && datamask run -s 'pool.takedown=\\[file:hit.txt]'
    """
    store = build_pipeline(config, settings).store
    store.refuse_missing()
    with plain_console(stderr=True).status("comparing"):
        found, hit = contamination_of(store, release, ngram=ngram)
    if list_file is not None:
        with storage_errors(str(list_file), "--list"):
            list_file.write_text("".join(f"{entry_of(*each)}\n" for each in hit), encoding="utf-8")
    print_answer(found, _lines(found), as_json=as_json)


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    if (before := found["left_out"]) is not None:
        yield (
            f"left out by pool.decontaminate: {before['documents']:,} documents with {before['ngram']} words of a question, "
            "themselves or in what they stand for; copies and collapsed near-duplicates of them are counted as duplicates"
        )
        for task, of in before["tasks"].items():
            short = f", {of['too_short']} too short to tell" if of["too_short"] else ""
            by = f"{of['questions_hit']} of {of['questions']} {_items(task)}"
            yield f"  {task}: {of['documents_left_out']} documents by {by}{short}"
    yield (
        f"release {found['release']}: {found['documents_hit']:,} of {found['documents']:,} eligible documents share "
        f"{found['ngram']} words in a row with what its models are asked"
    )
    yield "  each task with its file in the record; the rows of its questions are counted from 0"
    for task, of in found["tasks"].items():
        short = f", {of['too_short']} too short to tell" if of["too_short"] else ""
        yield f"  {task} ({of['file']})"
        yield f"    {of['questions_hit']} of {of['questions']} {_items(task)} in {of['documents_hit']} documents{short}"
        for example in of["examples"]:
            asked = "" if example["question_id"] is None else f", question_id {example['question_id']}"
            yield f"    e.g. {example['document']} and row {example['row']}{asked}: {example['words']}"


def _items(task: str) -> str:
    return "curated documents" if task == CURATED else "questions"
