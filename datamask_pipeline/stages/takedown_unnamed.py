"""Requests that name what was purged: a salted hash stands for the name. Knows rows of requests; no document.

Their kinds are `hidden`, for an id or a content hash, and `hidden_url`, for a URL that was the whole address of a document:
its host stays, and its value is the number of characters after the host, a colon, and the hash of both together.
Requests of kind `text`, the content hashes of what another request names in crawls outside the release, go altogether: a
content that was purged is withdrawn from every release as it is.
"""

from collections.abc import Iterable
from typing import Any, Final

from datamask_pipeline.storage.tombstones import Erased, hashed

HIDDEN: Final = "hidden"
HIDDEN_URL: Final = "hidden_url"
TEXT: Final = "text"
_NAMED: Final = ("name", "id", "content")

Row = dict[str, Any]


def hide(rows: Iterable[Row], purged: Erased | None) -> list[Row]:
    """The requests, each once, entries before hosts of a snapshot, sorted; those that name what was purged, without it.

    Args:
        rows: Rows of `schema.TAKEDOWN`.
        purged: What must not be named; ``None``: anything may be.
    """
    made, texts = {}, {}
    shown: dict[str, str] = {}
    for row in rows:
        if row["kind"] != TEXT:
            own = row if purged is None else without_name(row, purged)
            made[own["entry"]], shown[row["entry"]] = own, own["entry"]
        elif purged is None or row["value"] not in purged:
            texts[row["entry"], row["value"]] = row
    kept = [row | {"entry": shown[row["entry"]]} for row in texts.values()]

    def order(row: Row) -> tuple[bool, str, bool, str]:
        return row["kind"] == "robots", row["entry"], row["kind"] == TEXT, row["value"] or ""

    return sorted([*made.values(), *kept], key=order)


def names_purged(row: Row, purged: Erased) -> bool:
    """Whether a request names what was purged."""
    return row["value"] in purged if row["kind"] == TEXT else without_name(row, purged) is not row


def without_name(row: Row, purged: Erased) -> Row:
    """A request as it is kept once what it names is purged; the same where it names nothing of that."""
    value = row["value"]
    if row["kind"] in _NAMED and value in purged:
        name = hashed(purged.salt, value)
        return row | {"entry": f"{HIDDEN}:{name}", "kind": HIDDEN, "value": name}
    if row["kind"] == "url" and row["host"] + value in purged:
        told = f"{len(value)}:{hashed(purged.salt, row['host'] + value)}"
        return row | {"entry": f"{HIDDEN_URL}:{row['host']}:{told}", "kind": HIDDEN_URL, "value": told}
    return row
