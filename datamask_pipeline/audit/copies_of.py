"""Which documents share a document's text: what stands for it, and for what it stands. Knows no arm's decision."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from datamask_pipeline.audit.reader import Reader, Row


def representative(reader: Reader, pool: str, near_copies: str | None, crawl: str, name: str) -> Row | None:
    """The document that stands for another: the first of its exact copies, or what that is a near-copy of.

    Args:
        reader: Of the record.
        pool: Location of the candidates.
        near_copies: Location of the near-copies; ``None`` where they were not sought.
        crawl: The document's crawl.
        name: Its id.

    Returns:
        ``crawl``, ``id`` and ``exclusion`` (null: it is eligible), and as ``by`` ``copy`` or ``near_copy``; ``None`` for a
        document that stands for itself.
    """
    candidate = reader.one(pool, crawl, name)
    if candidate is None:
        return None
    first = candidate["representative_crawl"], candidate["representative_id"]
    near = reader.one(near_copies, *first)
    if near is not None and near["near_copy_of"] is not None:
        crawl, name, by = near["near_copy_of_crawl"], near["near_copy_of"], "near_copy"
    elif first != (crawl, name):
        crawl, name, by = *first, "copy"
    else:
        return None
    standing = reader.one(pool, crawl, name)
    return {"crawl": crawl, "id": name, "by": by, "exclusion": standing and standing["exclusion"]}


def stands_for(
    reader: Reader, pool: str, near_copies: str | None, candidate: Mapping[str, Any]
) -> Iterator[Row]:
    """The copies and near-copies that a document stands for, each near-copy before its own copies.

    Yields:
        ``crawl``, ``id`` and as ``by`` ``copy``, or ``near_copy`` with its ``cosine``.
    """
    crawl, name = candidate["crawl"], candidate["id"]
    if candidate["num_copies"] > 1:
        yield from exact_copies(reader, pool, crawl, name)
    columns = ["crawl", "id", "near_copy_of_crawl", "cosine"]
    for row in reader.tables.rows(near_copies, name, columns, by="near_copy_of") if near_copies else ():
        if row["near_copy_of_crawl"] == crawl:
            yield {"crawl": row["crawl"], "id": row["id"], "by": "near_copy", "cosine": row["cosine"]}
            yield from exact_copies(reader, pool, row["crawl"], row["id"])


def exact_copies(reader: Reader, pool: str, crawl: str, name: str) -> Iterator[Row]:
    """The other documents that a document represents among the candidates, each with ``crawl``, ``id`` and ``by``."""
    columns = ["crawl", "id", "representative_crawl", "representative_id"]
    others = reader.tables.rows(pool, name, columns, by="representative_id")
    # A copy under the same id in another crawl names itself by `representative_id`, and stands in no index by that.
    for row in itertools.chain(others, reader.tables.rows(pool, name, columns)):
        own = (row["crawl"], row["id"]) == (crawl, name)
        if not own and (row["representative_crawl"], row["representative_id"]) == (crawl, name):
            yield {"crawl": row["crawl"], "id": row["id"], "by": "copy"}
