"""`datamask audit diff`: who came and who went between two selections, and why?"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import typer

from datamask_pipeline.audit.diff import REASONS, changed_documents, compare_selections
from datamask_pipeline.audit.diff_reasons import SIDES
from datamask_pipeline.audit.selections import paired
from datamask_pipeline.cli.answers import print_answer
from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.cli.terminal import plain_console
from datamask_pipeline.printable import inert
from datamask_pipeline.token_totals import in_words

#: So many crawls and domains are printed; `--json` has all.
MOST_NAMES = 10


def diff(
    before: Annotated[
        str,
        typer.Argument(
            help="An arm (`first/datamask`), an older version of it (`first/datamask@previous`, or the first digits of its "
            "fingerprint after `@`), or a release (`first`)."
        ),
    ],
    after: Annotated[str, typer.Argument(help="The same, to compare it with.")],
    list_side: Annotated[
        Literal["came", "went"] | None,
        typer.Option(
            "--list", help="Print each document that came, or went, with its reason, instead of totals."
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="One JSON object an arm; with --list one JSON object a document, one a line."
        ),
    ] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Print who came and who went between two selections, and why, in documents and tokens.

    Of two releases, each arm that both have is compared. Each document that only one side chose has one reason, and
    the reasons add up to the totals. Exit status 1 for a name that the record does not know.

    Example:

        datamask audit diff first/datamask@previous first/datamask
    """
    store = build_pipeline(config, settings).store
    pairs, alone = paired(store, before, after)
    for old, new in pairs:
        if list_side is not None:
            for row in changed_documents(store, old, new, list_side):
                row = {"before": old.key, "after": new.key, **row}
                told = [old.key, new.key] if len(pairs) > 1 else []
                line = "  ".join(
                    map(str, [*told, row["crawl"], row["id"], row["domain"] or "-", row["told"]])
                )
                print_answer(row, [line], as_json=as_json, indent=None)
            continue
        with plain_console(stderr=True).status(f"comparing {old.key} with {new.key}"):
            found = compare_selections(store, old, new)
        print_answer(found, _lines(found), as_json=as_json, indent=None)
    for arm in alone:
        typer.echo(inert(f"arm {arm} is in one of the two releases alone, and is not compared"), err=True)


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    before, after = (
        f"{found[side]['key']} (fingerprint {found[side]['version']})" for side in ("before", "after")
    )
    yield f"{before} -> {after}: {found['stayed']:,} documents are in both"
    for line in found["settings"]:
        yield f"  differs: {line}"
    for line in found["settings_not_read"]:
        yield f"  differs, and is not read by the arm: {line}"
    for side in SIDES:
        total = found[side]
        yield f"  {side}: {_amount(total)}"
        for row in total["reasons"]:
            yield f"    {REASONS[row['name']][side]}: {_amount(row)}"
        for by in ("crawls", "domains"):
            for row in total[by][:MOST_NAMES]:
                yield f"    {by[:-1]} {row['name'] or '-'}: {_amount(row)}"
            if (more := len(total[by]) - MOST_NAMES) > 0:
                yield f"    and {more:,} {by} more"


def _amount(row: Mapping[str, Any]) -> str:
    return f"{row['documents']:,} documents, {in_words(row['tokens'], row['without_tokens'])}"
