"""Finds the documents that requests for withdrawal name. Knows their ids, URLs and content hashes; no text."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from datamask_pipeline import domains, duck
from datamask_pipeline.stages.takedown_robots import forbids
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.tombstones import Erased, hashed_sql

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
    if requests is None:
        return
    asked = duck.parts_sql(store, [requests], "entry, kind, host, value")
    connection.execute(f"CREATE OR REPLACE TEMP TABLE asked AS SELECT entry, kind, host, value FROM {asked}")
    rows = duck.parts_sql(store, documents, "id, content_hash, url")
    for column, kinds in (("id", "'name', 'id'"), ("content_hash", "'name', 'content'")):
        connection.execute(f"""
            INSERT INTO named SELECT entry, artefact_order, artefact_row
            FROM {rows} AS d JOIN asked ON asked.value = d.{column} WHERE kind IN ({kinds})
        """)
    if connection.execute("SELECT count(host) FROM asked").fetchall() != [(0,)]:
        _locate(connection, rows)
        _find_by_host(connection)
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


def _locate(connection: "duckdb.DuckDBPyConnection", rows: str) -> None:
    """Make the table `located`: documents of the hosts that are asked for, with the requests that may name them."""
    connection.create_function("canonical_host", _canonical_hosts, ["VARCHAR"], "VARCHAR", type="arrow")
    connection.execute(f"""
        CREATE OR REPLACE TEMP TABLE hosts AS
        SELECT spelt, canonical_host(spelt) AS host
        FROM (SELECT DISTINCT {domains.host_sql("url")} AS spelt FROM {rows}) WHERE spelt <> ''
    """)
    connection.execute(f"""
        CREATE OR REPLACE TEMP TABLE located AS
        WITH parents AS (
            SELECT spelt, host, string_split(host, '.') AS labels,
                unnest(generate_series(1, len(string_split(host, '.')))) AS first FROM hosts
        ),
        wanted AS (
            SELECT spelt, parents.host, entry, kind, value
            FROM parents JOIN asked ON asked.host = array_to_string(labels[first:], '.')
            WHERE kind = 'domain' OR first = 1
        )
        SELECT entry, kind, value, host, url, {domains.after_host_sql("url")} AS rest, artefact_order, artefact_row
        FROM {rows} AS d JOIN wanted ON wanted.spelt = {domains.host_sql("url")}
    """)


def _find_by_host(connection: "duckdb.DuckDBPyConnection") -> None:
    """What domains and URL prefixes name."""
    connection.execute("""
        INSERT INTO named SELECT entry, artefact_order, artefact_row FROM located
        WHERE kind = 'domain' OR (
            kind = 'url' AND starts_with(rest, value) AND (value <> '' OR rest[1] IN ('', '/', '?', '#'))
        )
    """)


def _find_forbidden(connection: "duckdb.DuckDBPyConnection", store: Store, requests: Ref) -> None:
    """What the robots.txt of its host forbids."""
    snapshot = store.manifest(requests)["basis"]["config"]["robots"]
    if snapshot is None:
        return
    table = store.read_table(requests, ["host", "kind", "robots"]).to_pylist()
    texts = {row["host"]: row["robots"] for row in table if row["kind"] == "robots"}

    def forbidden(hosts: pa.ChunkedArray, urls: pa.ChunkedArray) -> pa.Array:
        pairs = zip(hosts.to_pylist(), urls.to_pylist(), strict=True)
        return pa.array([forbids(texts[host], snapshot["user_agents"], url) for host, url in pairs])

    connection.create_function("forbidden", forbidden, ["VARCHAR", "VARCHAR"], "BOOLEAN", type="arrow")
    connection.execute("""
        INSERT INTO named SELECT entry, artefact_order, artefact_row
        FROM (SELECT * FROM located WHERE kind = 'robots') WHERE forbidden(host, url)
    """)


def _canonical_hosts(hosts: pa.ChunkedArray) -> pa.Array:
    return pa.array([domains.canonical_host(host) for host in hosts.to_pylist()], pa.string())
