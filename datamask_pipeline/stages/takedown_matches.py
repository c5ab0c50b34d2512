"""Finds the documents that requests for withdrawal name. Knows their ids, URLs and content hashes; no text."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from datamask_pipeline import domains, duck, schema
from datamask_pipeline.stages.takedown_robots import forbids
from datamask_pipeline.stages.takedown_unnamed import HIDDEN, HIDDEN_URL, TEXT
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.tombstones import Tombstone, hashed_sql, salt_of, tombstones

if TYPE_CHECKING:
    import duckdb

Row = dict[str, Any]
#: What a request names a document by.
_NAMED_BY: Final = ("id", "content_hash", "url")


def find_named(
    connection: "duckdb.DuckDBPyConnection", store: Store, requests: Ref | None, documents: Sequence[Ref]
) -> None:
    """Make the table `named`: each request with each document that it names, by the document's place in the release; and
    `asked` (the requests) and `texts` (what some of them name in crawls outside the release, by its content hash).

    Args:
        connection: A connection to the record.
        store: The record.
        requests: What is asked; ``None`` names nothing.
        documents: Documents of each crawl, in the release's order.
    """
    rows: list[Row] = [] if requests is None else store.read_table(requests).to_pylist()
    snapshot = None if requests is None else store.manifest(requests)["basis"]["config"]["robots"]
    find_asked(connection, store, rows, documents, snapshot)


def find_asked(
    connection: "duckdb.DuckDBPyConnection",
    store: Store,
    requests: Sequence[Row],
    documents: Sequence[Ref],
    snapshot: Mapping[str, Any] | None,
) -> None:
    """As `find_named`, of requests that do not stand in the record yet.

    Args:
        connection: A connection to the record.
        store: The record.
        requests: Rows of `schema.TAKEDOWN`.
        documents: Documents of each crawl.
        snapshot: Date and crawlers of a robots snapshot.
    """
    _find_among(
        connection, store, requests, duck.parts_sql(store, documents, "id, content_hash, url"), snapshot
    )


def entries_naming(store: Store, requests: Ref, documents: Sequence[Row]) -> list[str]:
    """The requests that name one of a few documents.

    Args:
        store: The record.
        requests: What is asked.
        documents: Rows with ``id``, ``content_hash`` and ``url``.

    Returns:
        Their entries, sorted; of a robots snapshot `robots:HOST`.
    """
    columns = {name: pa.array([row[name] for row in documents], pa.string()) for name in _NAMED_BY}
    numbers = pa.array(range(len(documents)), pa.int64())
    few = pa.table({**columns, "artefact_order": numbers, "artefact_row": numbers})
    snapshot = store.manifest(requests)["basis"]["config"]["robots"]
    with tempfile.TemporaryDirectory() as scratch, duck.connect(store, Path(scratch)) as connection:
        connection.register("few", few)
        _find_among(connection, store, store.read_table(requests).to_pylist(), "few", snapshot)
        found = connection.execute("SELECT DISTINCT entry FROM named ORDER BY entry").fetchall()
    return [entry for (entry,) in found]


def _find_among(
    connection: "duckdb.DuckDBPyConnection",
    store: Store,
    requests: Sequence[Row],
    rows: str,
    snapshot: Mapping[str, Any] | None,
) -> None:
    """As `find_asked`, among the documents that some SQL gives."""
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE named (entry VARCHAR, artefact_order BIGINT, artefact_row BIGINT)"
    )
    connection.register("requests", pa.Table.from_pylist([*requests], schema=schema.TAKEDOWN))
    connection.execute(f"""
        CREATE OR REPLACE TEMP TABLE asked AS SELECT entry, kind, host, value FROM requests WHERE kind <> '{TEXT}';
        CREATE OR REPLACE TEMP TABLE texts AS SELECT entry, value AS content_hash FROM requests WHERE kind = '{TEXT}';
    """)
    if not requests:
        return
    connection.execute(f"""
        INSERT INTO named SELECT entry, artefact_order, artefact_row FROM {rows} AS d JOIN texts USING (content_hash)
    """)
    for column, kinds in (("id", "'name', 'id'"), ("content_hash", "'name', 'content'")):
        connection.execute(f"""
            INSERT INTO named SELECT entry, artefact_order, artefact_row
            FROM {rows} AS d JOIN asked ON asked.value = d.{column} WHERE kind IN ({kinds})
        """)
        _find_hidden(connection, store, rows, column)
    if connection.execute("SELECT count(host) FROM asked").fetchall() != [(0,)]:
        _locate(connection, rows)
        _find_by_host(connection)
        _find_hidden_urls(connection, store)
        _find_forbidden(connection, requests, snapshot)


def find_purged(
    connection: "duckdb.DuckDBPyConnection", store: Store, documents: Sequence[Ref]
) -> dict[str, Tombstone]:
    """Add to the table `named` what has a content that was purged from the record, by the first purge that erased it.

    Args:
        connection: A connection to the record.
        store: The record.
        documents: Documents of each crawl, in the release's order.

    Returns:
        The purges that erased contents, by what stands as entry in `named`.
    """
    purges = {named_by_purge(each): each for each in tombstones(store) if each.contents}
    entries: dict[str, str] = {}
    for entry, each in purges.items():
        entries = dict.fromkeys(each.contents, entry) | entries
    if entries:
        connection.register("purged", pa.table({"hash": [*entries], "entry": [*entries.values()]}))
        connection.execute(f"""
            INSERT INTO named SELECT entry, artefact_order, artefact_row
            FROM {duck.parts_sql(store, documents, "content_hash")} AS d
            JOIN purged ON purged.hash = {hashed_sql(salt_of(store), "d.content_hash")}
        """)
    return purges


def named_by_purge(purge: Tombstone) -> str:
    """What stands for an entry where a document has the text of what a purge erased."""
    return f"the texts purged by {purge.title}"


def _find_hidden(connection: "duckdb.DuckDBPyConnection", store: Store, rows: str, column: str) -> None:
    """What an id or content hash names of which the record keeps a salted hash alone."""
    if _any_of(connection, HIDDEN):
        connection.execute(f"""
            INSERT INTO named SELECT entry, artefact_order, artefact_row
            FROM {rows} AS d JOIN asked ON asked.value = {hashed_sql(salt_of(store), f"d.{column}")}
            WHERE kind = '{HIDDEN}'
        """)


def _find_hidden_urls(connection: "duckdb.DuckDBPyConnection", store: Store) -> None:
    """What URL prefixes name of which the record keeps host, length and salted hash alone."""
    if _any_of(connection, HIDDEN_URL):
        prefix = "host || rest[:split_part(value, ':', 1)::INTEGER]"
        connection.execute(f"""
            INSERT INTO named SELECT entry, artefact_order, artefact_row
            FROM (SELECT * FROM located WHERE kind = '{HIDDEN_URL}')
            WHERE split_part(value, ':', 2) = {hashed_sql(salt_of(store), f"({prefix})")}
        """)


def _any_of(connection: "duckdb.DuckDBPyConnection", kind: str) -> bool:
    return bool(connection.execute("SELECT true FROM asked WHERE kind = ? LIMIT 1", [kind]).fetchall())


def _locate(connection: "duckdb.DuckDBPyConnection", rows: str) -> None:
    """Make the table `located`: documents of the hosts that are asked for, with the requests that may name them."""
    connection.execute(f"""
        CREATE OR REPLACE TEMP TABLE located AS
        WITH hosts AS (SELECT DISTINCT {domains.host_sql("url")} AS host FROM {rows}),
        parents AS (
            SELECT host, string_split(host, '.') AS labels,
                unnest(generate_series(1, len(string_split(host, '.')))) AS first FROM hosts WHERE host <> ''
        ),
        wanted AS (
            SELECT parents.host, entry, kind, value
            FROM parents JOIN asked ON asked.host = array_to_string(labels[first:], '.')
            WHERE kind IN ('domain', 'suffix') OR first = 1
        )
        SELECT entry, kind, value, host, {domains.after_host_sql("url")} AS rest, artefact_order, artefact_row
        FROM {rows} AS d JOIN wanted ON wanted.host = {domains.host_sql("url")}
    """)


def _find_by_host(connection: "duckdb.DuckDBPyConnection") -> None:
    """What domains, suffixes and URL prefixes name."""
    connection.execute("""
        INSERT INTO named SELECT entry, artefact_order, artefact_row FROM located
        WHERE kind IN ('domain', 'suffix') OR (
            kind = 'url' AND starts_with(rest, value)
            AND (regexp_matches(value, '[/?#]') OR rest[len(value) + 1] IN ('', '/', '\\', '?', '#'))
        )
    """)


def _find_forbidden(
    connection: "duckdb.DuckDBPyConnection", requests: Sequence[Row], snapshot: Mapping[str, Any] | None
) -> None:
    """What the robots.txt of its host forbids."""
    if snapshot is None:
        return
    texts = {row["host"]: row["robots"] for row in requests if row["kind"] == "robots"}

    def forbidden(hosts: pa.ChunkedArray, rests: pa.ChunkedArray) -> pa.Array:
        pairs = zip(hosts.to_pylist(), rests.to_pylist(), strict=True)
        return pa.array([forbids(texts[host], snapshot["user_agents"], rest) for host, rest in pairs])

    connection.create_function("forbidden", forbidden, ["VARCHAR", "VARCHAR"], "BOOLEAN", type="arrow")
    connection.execute("""
        INSERT INTO named SELECT entry, artefact_order, artefact_row
        FROM (SELECT * FROM located WHERE kind = 'robots') WHERE forbidden(host, rest)
    """)
