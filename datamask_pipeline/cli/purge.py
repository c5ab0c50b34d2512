"""`datamask purge`: erases what the record still holds of withdrawn documents, and leaves a tombstone."""

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.compliance.purge import purge as purge_record
from datamask_pipeline.compliance.purge import unfinished
from datamask_pipeline.compliance.purge_plan import Plan, plan
from datamask_pipeline.printable import inert
from datamask_pipeline.storage.tombstones import Tombstone


def purge(
    request: Annotated[
        str, typer.Option("--request", help="What asks for it, e.g. the number of a letter; it is kept.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what would be erased and removed; write nothing.")
    ] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Erase what the record still holds of documents that its current releases withdraw.

    Superseded versions that hold one are removed: texts, vectors, scores, indexes, masks, subsets, tokenizers, models.
    What a crawl has is superseded by the same without them, and they are not ingested again. Standing releases and models
    stay, and are named. It cannot be undone. Killed in the middle, the next call ends it. Then run again (`datamask run`),
    and purge again: the releases that were made from the crawls as they were are superseded by that.

    Example:

        datamask purge --request "letter 17 of 2026-11-20" --dry-run
    """
    store = build_pipeline(config, settings).store
    console = Console(stderr=True)
    if dry_run:
        begun = unfinished(store)
        with console.status("reading the record"):
            lines = list(_planned(plan(store)) if begun is None else _told(begun))
    else:
        with console.status("purging"):
            lines = list(_told(purge_record(store, request)))
    typer.echo("\n".join(map(inert, lines)))


def _planned(found: Plan) -> Iterator[str]:
    for crawl, names in found.documents.items():
        yield f"would erase {len(names)} documents from crawl {crawl}"
    for location in found.erased:
        yield f"  would supersede {location} by the same without them"
    yield f"would remove {len(found.removed)} versions"
    for location in found.removed:
        yield f"  {location}"
    for location in found.kept:
        yield f"would keep {location}, which a standing model needs"
    yield from _standing(found.standing)


def _told(tombstone: Tombstone) -> Iterator[str]:
    yield f"purged by {tombstone.title}" if tombstone.state == "done" else f"begun: {tombstone.title}"
    for crawl, names in tombstone.documents.items():
        yield f"  {len(names)} documents erased from crawl {crawl}"
    yield f"  {len(tombstone.removed)} versions removed"
    for location in tombstone.removed:
        yield f"    {location}"
    yield from _standing(tombstone.standing)
    yield "now `datamask run` makes the releases of the crawls as they are, and the next purge removes what that supersedes"


def _standing(locations: list[str]) -> Iterator[str]:
    for location in locations:
        yield f"stands, and was made from withdrawn documents: {location}"
