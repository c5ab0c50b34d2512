"""Finds the documents that requests for withdrawal name. Knows their ids, URLs and content hashes; no text."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from datamask_pipeline import domains, duck
from datamask_pipeline.stages.takedown_robots import forbids
from datamask_pipeline.stages.takedown_unnamed import HIDDEN, HIDDEN_URL
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.tombstones import Erased, hashed_sql, salt_of

if TYPE_CHECKING:
    import duckdb


def find_named(
    connection: "duckdb.DuckDBPyConnection", store: Store, requests: Ref | None, documents: Sequence[Ref]
) -> None:
    """Make the table `named`: each request with each document that it names, by the document's place in the release.

    Args:
        connection: A connection to the record.
        store: The record.
        requests: What is asked; ``None`` names nothing.
        documents: Documents of each crawl, in the release's order.
    """
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE named (entry VARCHAR, artefact_order BIGINT, artefact_row BIGINT)"
    )
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE asked (entry VARCHAR, kind VARCHAR, host VARCHAR, value VARCHAR)"
    )
    if requests is None:
        return
    columns = "entry, kind, host, value"
    connection.execute(
        f"INSERT INTO asked SELECT {columns} FROM {duck.parts_sql(store, [requests], columns)}"
    )
    rows = duck.parts_sql(store, documents, "id, content_hash, url")
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
        _find_forbidden(connection, store, requests)


def find_purged(
    connection: "duckdb.DuckDBPyConnection", store: Store, purged: Erased, documents: Sequence[Ref]
) -> None:
    """Add to the table `named` what has a content that was purged from the record.

    Args:
        connection: A connection to the record.
        store: The record.
        purged: The contents.
        documents: Documents of each crawl, in the release's order.
    """
    connection.execute("CREATE OR REPLACE TEMP TABLE purged (hash VARCHAR)")
    connection.executemany("INSERT INTO purged VALUES (?)", [[name] for name in sorted(purged.hashes)])
    connection.execute(f"""
        INSERT INTO named SELECT 'purged', artefact_order, artefact_row
        FROM {duck.parts_sql(store, documents, "content_hash")} AS d
        JOIN purged ON purged.hash = {hashed_sql(purged.salt, "d.content_hash")}
    """)


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


def _find_forbidden(connection: "duckdb.DuckDBPyConnection", store: Store, requests: Ref) -> None:
    """What the robots.txt of its host forbids."""
    snapshot = store.manifest(requests)["basis"]["config"]["robots"]
    if snapshot is None:
        return
    table = store.read_table(requests, ["host", "kind", "robots"]).to_pylist()
    texts = {row["host"]: row["robots"] for row in table if row["kind"] == "robots"}

    def forbidden(hosts: pa.ChunkedArray, rests: pa.ChunkedArray) -> pa.Array:
        pairs = zip(hosts.to_pylist(), rests.to_pylist(), strict=True)
        return pa.array([forbids(texts[host], snapshot["user_agents"], rest) for host, rest in pairs])

    connection.create_function("forbidden", forbidden, ["VARCHAR", "VARCHAR"], "BOOLEAN", type="arrow")
    connection.execute("""
        INSERT INTO named SELECT entry, artefact_order, artefact_row
        FROM (SELECT * FROM located WHERE kind = 'robots') WHERE forbidden(host, rest)
    """)
