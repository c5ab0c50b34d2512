"""Who came and who went between two selections, and why, in totals and one by one. Knows no learner; changes nothing.

How a document's reason is found, `diff_sql` says. DuckDB works out of core, so memory is bounded by its limit.
"""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from datamask_pipeline import duck
from datamask_pipeline.audit.diff_sql import Side, find_changed, rows_of
from datamask_pipeline.audit.reader import input_location
from datamask_pipeline.audit.selections import Selection
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.changes import settings_that_differ

if TYPE_CHECKING:
    import duckdb

SIDES: Final[tuple[Side, ...]] = ("came", "went")
#: What DuckDB may hold before it spills.
MEMORY_LIMIT: Final = "1GB"

#: Why a document is chosen on one side alone; the first that holds, of what the other side says of it.
REASONS: Final[Mapping[str, Mapping[Side, str]]] = {
    "crawl": {"came": "of a new crawl", "went": "its crawl is no longer in the release"},
    "documents": {
        "came": "not among the crawl's documents before",
        "went": "no longer among the crawl's documents",
    },
    "takedown": {"came": "had been taken down", "went": "taken down"},
    "near_duplicate": {
        "came": "was a near-duplicate of another text",
        "went": "a near-duplicate of another text now",
    },
    "duplicate_content": {"came": "was an exact copy of another", "went": "an exact copy of another now"},
    "duplicate_id": {"came": "its id stood twice before", "went": "its id stands twice now"},
    "validation": {"came": "was held out for validation", "went": "held out for validation now"},
    "near_copy": {"came": "was a near-copy of another", "went": "a near-copy of another now"},
    "no_score": {"came": "had no score before", "went": "has no score now"},
    "configuration": {"came": "other settings", "went": "other settings"},
    "text": {"came": "another text under its id", "went": "another text under its id"},
    "score": {"came": "its score changed", "went": "its score changed"},
    "draw": {"came": "drawn this time", "went": "not drawn this time"},
    "quality": {
        "came": "same score; its quality against the threshold weighs more now",
        "went": "same score; its quality against the threshold weighs less now",
    },
    "diversity": {
        "came": "same score; its diversity weighs more now",
        "went": "same score; its diversity weighs less now",
    },
    "displaced": {
        "came": "same score; chosen now, by what the record does not say",
        "went": "same score; not chosen now, by what the record does not say",
    },
}


def compare_selections(store: Store, before: Ref, after: Ref) -> dict[str, Any]:
    """Who came and who went, in totals.

    Args:
        store: The record.
        before: A mask.
        after: Another.

    Returns:
        ``before`` and ``after`` (key and version), ``stayed``, ``settings`` (those that differ, one line each) and for
        ``came`` and ``went`` ``documents``, ``tokens`` (of those whose length is known), ``without_tokens``, and as lists
        of rows with the same three numbers ``reasons``, ``crawls`` and ``domains``, the most documents first. The reasons,
        and the crawls, and the domains, each add up to the totals.
    """
    with _changed(store, before, after) as (connection, settings):
        kept = connection.execute("SELECT count(*) FROM chosen_before").fetchall()[0][0]
        found: dict[str, Any] = {
            "before": {"key": before.key, "version": before.short},
            "after": {"key": after.key, "version": after.short},
            "settings": settings,
        }
        for side in SIDES:
            (total,) = _totals(connection, side)
            found[side] = total | {
                f"{by}s": _totals(connection, side, by) for by in ("reason", "crawl", "domain")
            }
        found["stayed"] = kept - found["went"]["documents"]
    return found


def changed_documents(store: Store, before: Ref, after: Ref, side: Side) -> Iterator[dict[str, Any]]:
    """Every document that came, or went, in the order of the release that chose it.

    Yields:
        ``crawl``, ``id``, ``domain``, ``tokens``, ``reason`` (a key of ``REASONS``) and ``told``, its words.
    """
    with _changed(store, before, after) as (connection, _):
        chosen = Selection.of(store, after if side == "came" else before)
        rows = connection.sql(
            f"""
            SELECT m.crawl, m.id, c.domain, c.tokens, c.reason FROM changed AS c
            JOIN {rows_of(store, chosen.pool, "position, crawl, id")} AS m ON m.position = c.mine
            WHERE c.side = {duck.literal(side)} ORDER BY c.mine
            """
        )
        for batch in rows.to_arrow_reader(8_192):
            for row in batch.to_pylist():
                yield {**row, "told": REASONS[row["reason"]][side]}


def _totals(connection: "duckdb.DuckDBPyConnection", side: Side, column: str = "") -> list[dict[str, Any]]:
    """Documents and tokens of one side, by a column if one is named."""
    cursor = connection.execute(
        f"""
        SELECT {f"{column} AS name," if column else ""} count(*) AS documents,
            coalesce(sum(tokens), 0)::BIGINT AS tokens, count(*) - count(tokens) AS without_tokens
        FROM changed WHERE side = ? {"GROUP BY name ORDER BY documents DESC, name" if column else ""}
        """,
        [side],
    )
    names = [description[0] for description in cursor.description or []]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@contextlib.contextmanager
def _changed(
    store: Store, before: Ref, after: Ref
) -> "Iterator[tuple[duckdb.DuckDBPyConnection, list[str]]]":
    """A database with the tables of ``find_changed``, and the settings that differ."""
    old, new = Selection.of(store, before), Selection.of(store, after)
    settings, are_others = _settings(store, old, new)
    with (
        tempfile.TemporaryDirectory() as scratch,
        duck.connect(store, Path(scratch), memory_limit=MEMORY_LIMIT) as connection,
    ):
        connection.execute("SET enable_external_file_cache = false")
        connection.execute("SET preserve_insertion_order = false")
        find_changed(connection, store, old, new, are_others=are_others)
        yield connection, settings


def _settings(store: Store, old: Selection, new: Selection) -> tuple[list[str], bool]:
    """The settings that differ, and whether the arm itself or its vectors are another's.

    Differences of pools, near-copies and scores are told, and seen in what they did to a document.
    """
    own = list(_of_stage("select", old.mask, new.mask))
    told = [*_of_stage("pool", old.pool, new.pool), *_of_stage("gather", old.index, new.index)]
    if old.copies and new.copies:
        told += _of_stage("copies", old.copies, new.copies)
    for crawl in old.crawls:
        if crawl in new.crawls:
            own += _read(store, "embed", f"embeddings/{crawl}", old.mask, new.mask)
            told += _read(store, "score", f"scores/{crawl}", old.index, new.index)
            told += _read(store, "ingest", f"documents/{crawl}", old.pool, new.pool)
    return list(dict.fromkeys([*own, *told])), bool(own)


def _read(
    store: Store, stage: str, name: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[str]:
    """The settings that differ of what both read under a name."""
    locations = [input_location(each, name) for each in (old, new)]
    if None not in locations:
        yield from _of_stage(stage, *(store.manifest_at(str(location)) for location in locations))


def _of_stage(stage: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    before, after = old["basis"], new["basis"]
    if before["version"] != after["version"]:
        yield f"{stage}: version of its code {before['version']} -> {after['version']}"
    for line in settings_that_differ(before["config"], after["config"]):
        yield f"{stage}: {line}"
