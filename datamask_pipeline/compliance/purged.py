"""What tombstones tell of a document or domain that was purged. Writes nothing."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Final, Literal

from datamask_pipeline import domains
from datamask_pipeline.stages.takedown_unnamed import HIDDEN
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.tombstones import Tombstone, hashed, tombstones

#: So many of the entries that a purge rested on are named.
_NAMED: Final = 5


def purged_story(store: Store, document_id: str) -> list[dict[str, Any]]:
    """Every purge that erased a document or removed a version that held it; none where there is none.

    Args:
        store: The record.
        document_id: The id as in the crawl, or the content hash.

    Returns:
        Of each: ``number``, ``request``, ``date``, ``entries`` (the one that names it, or all that withdrew something
        when it began), ``crawls`` that it was erased from, ``removed`` (versions that held it,
        each with stage, key and date), ``standing`` (models, results and reports that were made from documents of that
        request and stay).
    """
    return [found for each in tombstones(store) if (found := _told(each, document_id))]


@dataclasses.dataclass(frozen=True)
class Holdings:
    """What purged versions held of a name.

    Attributes:
        kind: What the name is of.
        purges: Of a document its story; of a domain each purge, with documents and bytes that were erased of it, and
            ``entries``. Tombstones count by registrable domain: of a sub-domain the numbers are of
            all of ``counted_as``, null for a registrable domain itself.
        held: By location, how many documents of it, or with its text, each purged version of a subset held; of tombstones of
            earlier versions, which do not tell texts apart, whether it held the document itself.
    """

    kind: Literal["document", "domain"]
    purges: list[dict[str, Any]]
    held: dict[str, int]


def purged_holdings(store: Store, target: str, kind: str | None) -> Holdings | None:
    """What was purged of a document, or of a registrable domain; ``None``: nothing was.

    Args:
        store: The record.
        target: The document's id as in the crawl, or a domain.
        kind: ``document`` or ``domain``; ``None`` for whatever it is.
    """
    found = tombstones(store)
    subsets = {
        location: manifest
        for each in found
        for location, manifest in each.removed.items()
        if manifest["stage"] == "materialise"
    }
    if found and kind in (None, "document") and (story := purged_story(store, target)):
        name = hashed(found[0].salt, target)
        rows = {
            location: of.get("texts", {}).get(name, int(any(name in names for names in of["held"].values())))
            for location, of in subsets.items()
        }
        return Holdings("document", story, {location: number for location, number in rows.items() if number})
    host = domains.canonical_host(target)
    counted = domains.registrable_domain(host) if domains.is_host(host) else host
    purges = []
    for each in found if kind in (None, "domain") else []:
        of = [totals["domains"][counted] for totals in each.totals.values() if counted in totals["domains"]]
        if of and host:
            gone = {"documents": sum(number for number, _ in of), "bytes": sum(size for _, size in of)}
            purges.append(
                {
                    **each.named,
                    **gone,
                    "counted_as": None if counted == host else counted,
                    "entries": _covering(each, host),
                }
            )
    if not purges:
        return None
    numbers = {
        location: of.get("content", {}).get("domains", {}).get(host, [0])[0]
        for location, of in subsets.items()
    }
    return Holdings("domain", purges, {location: number for location, number in numbers.items() if number})


def under(purge: dict[str, Any]) -> str:
    """The entries that a purge rested on; a few of many."""
    entries = purge["entries"]
    more = f" and {len(entries) - _NAMED} more" if len(entries) > _NAMED else ""
    return f", under {', '.join(entries[:_NAMED])}{more}" if entries else ""


def purged_lines(story: list[dict[str, Any]]) -> Iterator[str]:
    """The story, one fact a line."""
    for each in story:
        yield f"  purged by request {each['number']} ({each['request']}) of {each['date']}{under(each)}"
        for crawl in each["crawls"]:
            yield f"    erased from crawl {crawl}"
        for version in each["removed"]:
            yield f"    was held by {version['stage']} of {version['key']}, made {version['made_at']}: {version['artefact']}"
        for location in each["standing"]:
            yield f"    may have gone into {location}, which stands"


def _covering(tombstone: Tombstone, host: str) -> list[str]:
    """The entries of a purge that name a host or one above it; all that withdrew something, where none does.

    Of all, those of the host itself or of one below it come first, as only a few are told.
    """
    above = {f"{kind}:{name}" for name in domains.with_those_above(host) for kind in ("domain", "suffix")}
    covering = [entry for entry in tombstone.entries if entry in above]
    return covering or sorted(tombstone.entries, key=lambda entry: not _names_one_below(entry, host))


def _names_one_below(entry: str, host: str) -> bool:
    kind, _, value = entry.partition(":")
    if kind == "url":
        value = (domains.split_url(value) or ("", ""))[0]
    return kind in ("url", "robots", "domain", "suffix") and host in domains.with_those_above(value)


def _told(tombstone: Tombstone, document_id: str) -> dict[str, Any] | None:
    name = hashed(tombstone.salt, document_id)
    crawls = [crawl for crawl, names in tombstone.documents.items() if name in names]
    removed = [
        {
            "artefact": location,
            "stage": manifest["stage"],
            "key": manifest["key"],
            "made_at": manifest.get("written_at"),
        }
        for location, manifest in tombstone.removed.items()
        if any(name in names for names in manifest["held"].values())
    ]
    if not crawls and not removed and name not in tombstone.contents:
        return None
    return {
        "number": tombstone.number,
        "request": tombstone.request,
        "date": tombstone.date,
        "entries": [f"{HIDDEN}:{name}"] if f"{HIDDEN}:{name}" in tombstone.entries else tombstone.entries,
        "crawls": crawls,
        "removed": removed,
        "standing": tombstone.standing,
    }
