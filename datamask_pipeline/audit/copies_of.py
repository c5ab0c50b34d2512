"""What stands for a document, and for what it stands: exact copies, near-duplicates by words, near-copies by embedding.

Of these only an exact copy has the document's text. Knows no arm's decision.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from datamask_pipeline.audit.reader import Reader, Row

Kinship = Literal["copy", "near_duplicate", "near_copy"]
#: What a document is to the one that stands for it, in words.
KINSHIP: Final[Mapping[Kinship, str]] = {
    "copy": "an exact copy",
    "near_duplicate": "a near-duplicate",
    "near_copy": "a near-copy",
}


def representative(reader: Reader, pool: str, near_copies: str | None, crawl: str, name: str) -> Row | None:
    """The document that stands for another: the first of its copies and near-duplicates, or what that is a near-copy of.

    Args:
        reader: Of the record.
        pool: Location of the candidates.
        near_copies: Location of the near-copies; ``None`` where they were not sought.
        crawl: The document's crawl.
        name: Its id.

    Returns:
        ``crawl``, ``id`` and ``exclusion`` (null: it is eligible), and as ``by`` what the document is to it, a key of
        ``KINSHIP``; ``None`` for a document that stands for itself.
    """
    candidate = reader.one(pool, crawl, name)
    if candidate is None:
        return None
    first = candidate["representative_crawl"], candidate["representative_id"]
    near = reader.one(near_copies, *first)
    by: Kinship | None = None
    if near is not None and near["near_copy_of"] is not None:
        crawl, name, by = near["near_copy_of_crawl"], near["near_copy_of"], "near_copy"
    elif first != (crawl, name):
        crawl, name = first
    else:
        return None
    standing = reader.one(pool, crawl, name)
    by = by or kinship(candidate, standing)
    return {"crawl": crawl, "id": name, "by": by, "exclusion": standing and standing["exclusion"]}


def kinship(candidate: Mapping[str, Any], first: Mapping[str, Any] | None) -> Kinship:
    """What one of a group is to its first."""
    alike = first is None or first["content_hash"] == candidate["content_hash"]
    return "copy" if alike else "near_duplicate"


def stands_for(
    reader: Reader, pool: str, near_copies: str | None, candidate: Mapping[str, Any]
) -> Iterator[Row]:
    """What a document stands for, each near-copy before its own copies and near-duplicates.

    Yields:
        ``crawl``, ``id`` and as ``by`` ``copy``, ``near_duplicate`` (of the document, or of the near-copy before it), or
        ``near_copy`` with its ``cosine``.
    """
    crawl, name = candidate["crawl"], candidate["id"]
    if candidate["num_copies"] > 1:
        yield from grouped_with(reader, pool, crawl, name)
    columns = ["crawl", "id", "near_copy_of_crawl", "cosine"]
    for row in reader.tables.rows(near_copies, name, columns, by="near_copy_of") if near_copies else ():
        if row["near_copy_of_crawl"] == crawl:
            yield {"crawl": row["crawl"], "id": row["id"], "by": "near_copy", "cosine": row["cosine"]}
            yield from grouped_with(reader, pool, row["crawl"], row["id"])


def grouped_with(reader: Reader, pool: str, crawl: str, name: str) -> Iterator[Row]:
    """The other documents that a document represents among the candidates, each with ``crawl``, ``id`` and ``by``."""
    first = reader.one(pool, crawl, name)
    columns = ["crawl", "id", "content_hash", "representative_crawl", "representative_id"]
    others = reader.tables.rows(pool, name, columns, by="representative_id")
    # A copy under the same id in another crawl names itself by `representative_id`, and stands in no index by that.
    for row in itertools.chain(others, reader.tables.rows(pool, name, columns)):
        own = (row["crawl"], row["id"]) == (crawl, name)
        if not own and (row["representative_crawl"], row["representative_id"]) == (crawl, name):
            yield {"crawl": row["crawl"], "id": row["id"], "by": kinship(row, first)}
