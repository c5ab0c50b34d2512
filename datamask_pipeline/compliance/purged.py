"""What tombstones tell of a document that was purged. Writes nothing."""

from collections.abc import Iterator
from typing import Any

from datamask_pipeline.storage import Store
from datamask_pipeline.storage.tombstones import Tombstone, hashed, tombstones


def purged_story(store: Store, document_id: str) -> list[dict[str, Any]]:
    """Every purge that erased a document or removed a version that held it; none where there is none.

    Returns:
        Of each: ``number``, ``request``, ``date``, ``crawls`` that it was erased from, ``removed`` (versions that held it,
        each with stage, key and date), ``standing`` (models, results and reports that were made from documents of that
        request and stay).
    """
    return [found for each in tombstones(store) if (found := _told(each, document_id))]


def purged_lines(story: list[dict[str, Any]]) -> Iterator[str]:
    """The story, one fact a line."""
    for each in story:
        yield f"  purged by request {each['number']} ({each['request']}) of {each['date']}"
        for crawl in each["crawls"]:
            yield f"    erased from crawl {crawl}"
        for version in each["removed"]:
            yield f"    was held by {version['stage']} of {version['key']}, made {version['made_at']}: {version['artefact']}"
        for location in each["standing"]:
            yield f"    may have gone into {location}, which stands"


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
    if not crawls and not removed:
        return None
    return {
        "number": tombstone.number,
        "request": tombstone.request,
        "date": tombstone.date,
        "crawls": crawls,
        "removed": removed,
        "standing": tombstone.standing,
    }
