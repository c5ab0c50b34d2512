"""`datamask purge`: erases what the record still holds of withdrawn documents, and leaves a tombstone."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from datamask_pipeline.cli.options import ConfigOption, SetOption, build_pipeline
from datamask_pipeline.cli.terminal import plain_console
from datamask_pipeline.compliance.purge import purge as purge_record
from datamask_pipeline.compliance.purge import refuse_no_request, unfinished
from datamask_pipeline.compliance.purge_plan import Plan, plan
from datamask_pipeline.compliance.touched import documents_in, releases_of, shards_of
from datamask_pipeline.pipeline import FLOW
from datamask_pipeline.printable import inert
from datamask_pipeline.storage import Store, releases
from datamask_pipeline.storage.tombstones import Tombstone, salt_of, tombstones

_NOTHING = "nothing to purge: the record holds nothing more of the documents that its releases withdraw; nothing was written"
_NOTHING_NOW = "nothing to purge now; nothing was written"


def purge(
    request: Annotated[
        str, typer.Option("--request", help="What asks for it, e.g. the number of a letter; it is kept.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what would be erased and removed; write nothing.")
    ] = False,
    data_sets: Annotated[
        list[Path] | None,
        typer.Option(
            "--data-set",
            help="A published data set, to tell how many of the documents it holds; once for each.",
        ),
    ] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Erase what the record still holds of documents that its current releases withdraw.

    Superseded versions that hold one are removed: texts, vectors, scores, indexes, masks, subsets, tokenizers, models.
    What a crawl has is superseded by the same without them, and they are not ingested again. Standing releases and models
    stay, and are named. It cannot be undone. Killed in the middle, the next call ends it. Then run again (`datamask run`),
    and purge again: the releases that were made from the crawls as they were are superseded by that. What `datamask audit
    diff` tells of the versions that are removed is to be kept before: afterwards it cannot be told.

    Example:

        datamask purge --request "letter 17 of 2026-11-20" --dry-run
    """
    refuse_no_request(request)
    for folder in data_sets or []:  # what cannot be told of is refused before anything is erased
        shards_of(folder)
    pipeline = build_pipeline(config, settings)
    store = pipeline.store
    store.refuse_missing()
    off = [made.artefact for stage in FLOW if pipeline.config.is_off(stage) for made in stage.makes]
    console = plain_console(stderr=True)
    with console.status("reading the record" if dry_run else "purging"):
        if dry_run:
            begun = unfinished(store)
            found: Plan | Tombstone | None = plan(store, off) if begun is None else begun
        else:
            found = purge_record(store, request, off)
        if found is None or (isinstance(found, Plan) and found.is_empty):
            lines = list(_nothing(store, found or plan(store, off)))
        else:
            lines = list(_planned(found) if isinstance(found, Plan) else _told(found))
        if isinstance(found, Tombstone) and not dry_run and found.request != request:
            lines.append(
                f"that ended what an earlier call had begun; {request!r} was neither kept nor begun: purge again for it"
            )
        if found is not None:
            lines += _releases(store, found)
        lines += _published(store, found, data_sets or [])
    typer.echo("\n".join(map(inert, lines)))


def _releases(store: Store, found: Plan | Tombstone) -> Iterator[str]:
    for release in releases_of(store, found.documents):
        yield f"release {release} reads these crawls: it stands, and is to be run again"


def _published(store: Store, found: Plan | Tombstone | None, folders: list[Path]) -> Iterator[str]:
    """How many documents of data sets are among those that were purged, by whatever request, or would be."""
    documents: dict[str, set[str]] = {}
    contents: set[str] = set()
    purges: list[Plan | Tombstone] = [*tombstones(store)]
    if isinstance(found, Plan):
        purges.append(found)
    for each in purges:
        contents |= {*each.contents}
        for crawl, names in each.documents.items():
            documents.setdefault(crawl, set()).update(names)
    for folder in folders:
        number = documents_in(folder, salt_of(store) if found is None else found.salt, documents, contents)
        remedy = "publish it again without them" if number else "it stays as it is"
        yield f"data set {folder}: {number:,} of its documents are withdrawn; {remedy}"


def _nothing(store: Store, found: Plan) -> Iterator[str]:
    """That nothing is to be purged, and what stands all the same, with what makes it go away."""
    yield _NOTHING_NOW if found.naming or found.standing else _NOTHING
    retired = releases.every_name(store) - releases.names(store)
    for location in found.naming:
        release = location.split("/")[1]
        undo = f"`datamask retire {release} --undo`, " if release in retired else ""
        yield (
            f"stands, and names withdrawn documents: {location}; {undo}`datamask run` supersedes it, and the next purge "
            "removes it"
        )
    yield from _standing(found.standing)


def _planned(found: Plan) -> Iterator[str]:
    for crawl, names in found.documents.items():
        yield f"would erase {len(names)} documents from crawl {crawl}"
    for location in found.erased:
        yield f"  would supersede {location} by the same without them"
    yield f"would remove {len(found.removed)} versions"
    for location in found.removed:
        yield f"  {location}"
    yield from _no_more_compared(found.removed)
    for location in found.unfinished:
        yield f"would remove unfinished {location}"
    for location in found.kept:
        yield f"would keep {location}, which a standing model needs"
    yield from _standing(found.standing)


def _told(tombstone: Tombstone) -> Iterator[str]:
    if tombstone.state == "begun":
        yield f"begun, and ended by the next call, whatever its request: {tombstone.title}"
        done = "to be "
    else:
        yield f"purged by {tombstone.title}"
        done = ""
    for crawl, names in tombstone.documents.items():
        yield f"  {len(names)} documents {done}erased from crawl {crawl}"
    yield f"  {len(tombstone.removed)} versions {done}removed"
    for location in tombstone.removed:
        yield f"    {location}"
    yield from _no_more_compared(tombstone.removed)
    for location in tombstone.unfinished:
        yield f"  unfinished work {done}removed: {location}"
    for location in tombstone.kept:
        yield f"kept, as a standing model needs it: {location}"
    yield from _standing(tombstone.standing)
    if tombstone.documents and tombstone.state == "done":
        yield (
            "now `datamask run` makes the releases of the crawls as they are, and the next purge removes what that "
            "supersedes"
        )


def _no_more_compared(removed: Iterable[str]) -> Iterator[str]:
    """What cannot be asked once masks and candidates are gone."""
    stages = [location.partition("/")[0] for location in removed]
    masks, pools = stages.count("select"), stages.count("pool")
    gone = [f"masks ({masks})"] * (masks > 0) + [f"candidates ({pools})"] * (pools > 0)
    if gone:
        yield (
            f"without these versions of {' and '.join(gone)} `datamask audit diff` cannot tell who came and "
            "went between a release as it was and another"
        )


def _standing(locations: list[str]) -> Iterator[str]:
    for location in locations:
        yield f"stands, and was made from withdrawn documents: {location}"
