"""Requests that name what was purged: a salted hash stands for the name. Knows rows of requests; no document.

Their kinds are `hidden`, for an id or a content hash, and `hidden_url`, for a URL that was the whole address of a document:
its host stays, and its value is the number of characters after the host, a colon, and the hash of both together.
"""

from collections.abc import Iterable
from typing import Any, Final

from datamask_pipeline.storage.tombstones import Erased, hashed

HIDDEN: Final = "hidden"
HIDDEN_URL: Final = "hidden_url"
_NAMED: Final = ("name", "id", "content")

Row = dict[str, Any]


def hide(rows: Iterable[Row], purged: Erased | None) -> list[Row]:
    """The requests, each once, entries before hosts of a snapshot, sorted; those that name what was purged, without it.

    Args:
        rows: Rows of `schema.TAKEDOWN`.
        purged: What must not be named; ``None``: anything may be.
    """
    made = [row if purged is None else without_name(row, purged) for row in rows]
    found = {row["entry"]: row for row in made}
    return sorted(found.values(), key=lambda row: (row["kind"] == "robots", row["entry"]))


def names_purged(row: Row, purged: Erased) -> bool:
    """Whether a request names what was purged."""
    return without_name(row, purged) is not row


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
