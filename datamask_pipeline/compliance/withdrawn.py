"""What current pools withdraw: by salted hashes, and in numbers. Writes nothing."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datamask_pipeline import domains, duck
from datamask_pipeline.compliance.graph import Graph
from datamask_pipeline.storage import Ref
from datamask_pipeline.storage.ref import ref_of
from datamask_pipeline.storage.tombstones import hashed_sql, tombstones

if TYPE_CHECKING:
    import duckdb


@dataclasses.dataclass(frozen=True)
class Withdrawn:
    """What current pools withdraw.

    Attributes:
        documents: By crawl, hashes of the ids that no purge has erased yet.
        contents: Hashes of content hashes.
        urls: Hashes of addresses.
        totals: By crawl, those of ``documents`` in numbers, as a tombstone keeps them.
    """

    documents: Mapping[str, list[str]]
    contents: list[str]
    urls: list[str]
    totals: Mapping[str, Mapping[str, Any]]


def find_withdrawn(graph: Graph, connection: "duckdb.DuckDBPyConnection", salt: str) -> Withdrawn:
    """Find it; and make the tables `gone` (crawl, hash) and `gone_contents` (hash) of what is withdrawn now or was before.

    The same text in a crawl that no current pool reads is withdrawn too; where one reads it, its next run withdraws it.
    """
    known = [
        (crawl, name)
        for each in tombstones(graph.store)
        for crawl, names in each.documents.items()
        for name in names
    ]
    connection.execute("CREATE TEMP TABLE known (crawl VARCHAR, hash VARCHAR)")
    if known:
        connection.executemany("INSERT INTO known VALUES (?, ?)", known)
    connection.execute(
        "CREATE TEMP TABLE withdrawn (crawl VARCHAR, id VARCHAR, hash VARCHAR, content VARCHAR)"
    )
    pools = [each for each in graph.of("pool") if each in graph.pointed]
    if pools:
        refs = [ref_of(graph.manifests[each]) for each in pools]
        connection.execute(f"""
            INSERT INTO withdrawn SELECT DISTINCT crawl, id, {hashed_sql(salt, "id")}, {hashed_sql(salt, "content_hash")}
            FROM {duck.parts_sql(graph.store, refs, "crawl, id, content_hash, exclusion")}
            WHERE exclusion = 'takedown'
        """)
    contents_known = {(name,) for each in tombstones(graph.store) for name in each.contents}
    connection.execute("CREATE TEMP TABLE gone_contents AS SELECT DISTINCT content AS hash FROM withdrawn")
    if contents_known:
        connection.executemany("INSERT INTO gone_contents VALUES (?)", sorted(contents_known))
    read = {crawl for each in pools for crawl in graph.manifests[each]["basis"]["config"]["crawls"]}
    ingested = [ref_of(graph.manifests[each]) for each in graph.of("ingest") if each in graph.pointed]
    unread = [ref for ref in ingested if ref.key not in read]
    for ref in unread:
        if ref.rows:
            crawl, rows = duck.literal(ref.key), duck.parts_sql(graph.store, [ref], "id, content_hash")
            connection.execute(f"""
                INSERT INTO withdrawn
                SELECT DISTINCT {crawl}, id, {hashed_sql(salt, "id")}, {hashed_sql(salt, "content_hash")} AS content
                FROM {rows} WHERE content IN (SELECT hash FROM gone_contents)
                EXCEPT SELECT crawl, id, hash, content FROM withdrawn
            """)
    connection.execute(
        "CREATE TEMP TABLE gone AS SELECT crawl, hash FROM withdrawn UNION SELECT crawl, hash FROM known"
    )
    new: dict[str, list[str]] = {}
    fresh = "SELECT DISTINCT crawl, hash FROM withdrawn ANTI JOIN known USING (crawl, hash) ORDER BY ALL"
    for crawl, name in connection.execute(fresh).fetchall():
        new.setdefault(crawl, []).append(name)
    contents = connection.execute("SELECT DISTINCT content FROM withdrawn ORDER BY 1").fetchall()
    urls, totals = _measured(graph, connection, salt, pools, unread)
    return Withdrawn(new, [name for (name,) in contents], urls, totals)


def _measured(
    graph: Graph, connection: "duckdb.DuckDBPyConnection", salt: str, pools: list[str], unread: list[Ref]
) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Hashes of the withdrawn documents' addresses; and of those that are new, what they are in numbers, by crawl."""
    refs = {
        ref.location: ref
        for each in pools
        for name, ref in graph.inputs(each)
        if name.startswith("documents/")
    }
    documents = [*(ref for location, ref in refs.items() if location in graph.manifests), *unread]
    if not documents:
        return [], {}
    columns = f"""crawl, id, {domains.host_sql("url")} AS host, {domains.after_host_sql("url")} AS rest,
        strlen(text) AS bytes, token_count"""
    connection.execute(f"""
        CREATE TEMP TABLE measured AS
        SELECT DISTINCT ON (crawl, id) crawl, hash, host, rest, bytes, token_count
        FROM {duck.parts_sql(graph.store, documents, columns)} JOIN withdrawn USING (crawl, id)
    """)
    urls = connection.execute(
        f"SELECT DISTINCT {hashed_sql(salt, '(host || rest)')} FROM measured WHERE host <> '' ORDER BY 1"
    ).fetchall()
    rows = connection.execute(
        "SELECT crawl, host, count(*), sum(bytes)::BIGINT, count(token_count), coalesce(sum(token_count), 0)::BIGINT "
        "FROM measured ANTI JOIN known USING (crawl, hash) GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    by_crawl: dict[str, list[tuple[str, int, int, int, int]]] = {}
    for crawl, *of_host in rows:
        by_crawl.setdefault(crawl, []).append(tuple(of_host))
    return [name for (name,) in urls], {crawl: _totals(of) for crawl, of in by_crawl.items()}


def _totals(rows: list[tuple[str, int, int, int, int]]) -> dict[str, Any]:
    """Of hosts, each with documents, bytes, documents whose tokens are stated, and these."""
    of: dict[str, list[int]] = {}
    for host, documents, size, _, _ in rows:
        about = of.setdefault(domains.registrable_domain(host) if host else "", [0, 0])
        about[0] += documents
        about[1] += size
    documents = sum(row[1] for row in rows)
    return {
        "documents": documents,
        "bytes": sum(row[2] for row in rows),
        "tokens": sum(row[4] for row in rows),
        "without_tokens": documents - sum(row[3] for row in rows),
        "domains": of,
    }
