"""Which unfinished work holds purged documents, or can never be finished after a purge. Knows no stage's checkpoints.

What was begun and has no manifest: parts that were published by themselves, checkpoints and notes.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from datamask_pipeline import duck
from datamask_pipeline.compliance.graph import Graph
from datamask_pipeline.storage.releases import frozen_crawls
from datamask_pipeline.storage.tombstones import hashed_sql

if TYPE_CHECKING:
    import duckdb


def begun_on(
    graph: Graph, documents: Mapping[str, Collection[str]], of_a_crawl: Collection[str]
) -> list[str]:
    """Where unfinished work lies on the crawls from which a purge erases, and on releases that read them.

    What it was made from is superseded, so no run goes on with it. Arguments as of `unfinished_of`.
    """

    def is_touched(location: str) -> bool:
        stage, key = unfinished_key(location)
        if stage in of_a_crawl:
            return bool(documents.get(key))
        return any(documents.get(crawl) for crawl in frozen_crawls(graph.store, key.partition("/")[0]) or ())

    return [location for location in graph.unfinished if is_touched(location)]


def unfinished_of(
    graph: Graph,
    connection: "duckdb.DuckDBPyConnection",
    salt: str,
    documents: Mapping[str, Collection[str]],
    of_a_crawl: Collection[str],
) -> list[str]:
    """Where the work lies that has to go with a purge.

    Args:
        graph: The record's versions.
        connection: With the tables of `find_withdrawn`.
        salt: Stands before what is hashed.
        documents: By crawl, what the purge erases; all that is `begun_on` them goes.
        of_a_crawl: Stages whose key is a crawl.

    Returns:
        Locations; of other crawls and releases those that hold a row with the id or content of a withdrawn document.
    """
    touched = {*begun_on(graph, documents, of_a_crawl)}
    return [
        location
        for location, names in graph.unfinished.items()
        if location in touched or _holds(graph, connection, salt, location, names)
    ]


def unfinished_key(location: str) -> tuple[str, str]:
    """Stage and key of work by where it lies."""
    stage, _, rest = location.partition("/")
    return stage, rest.rpartition("/")[0]


def _holds(
    graph: Graph, connection: "duckdb.DuckDBPyConnection", salt: str, location: str, names: Iterable[str]
) -> bool:
    """Whether a published part has a row with the id or content of a withdrawn document."""
    _, key = unfinished_key(location)
    for path in (f"{graph.store.root}/{name}" for name in names if name.endswith(".parquet")):
        with graph.store.open_parquet(path) as part:
            columns = {*part.schema_arrow.names}
        crawl = "crawl" if "crawl" in columns else duck.literal(key)
        conditions = []
        if "id" in columns:
            conditions.append(f"({crawl}, {hashed_sql(salt, 'id')}) IN (SELECT (crawl, hash) FROM gone)")
        if "content_hash" in columns:
            conditions.append(f"{hashed_sql(salt, 'content_hash')} IN (SELECT hash FROM gone_contents)")
        source = f"read_parquet({duck.file_literal(graph.store, path)})"
        if (
            conditions
            and connection.execute(
                f"SELECT 1 FROM {source} WHERE {' OR '.join(conditions)} LIMIT 1"
            ).fetchall()
        ):
            return True
    return False
