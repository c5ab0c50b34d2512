"""Tells which current versions stand in the way of a purge: of which document, who withdraws it, and what to do first."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from datamask_pipeline import duck
from datamask_pipeline.compliance.graph import Graph
from datamask_pipeline.stages.takedown_matches import find_named
from datamask_pipeline.storage import releases
from datamask_pipeline.storage.ref import ref_of
from datamask_pipeline.storage.tombstones import hashed_sql

if TYPE_CHECKING:
    import duckdb

#: Releases and their arms that are named at most.
MOST_NAMED: Final = 8


def in_the_way(
    graph: Graph,
    connection: "duckdb.DuckDBPyConnection",
    salt: str,
    held: Mapping[str, Mapping[str, list[str]]],
    blocking: list[str],
) -> str:
    """What has to be done before a purge about current versions that still use a withdrawn document.

    Args:
        graph: The record's versions.
        connection: A connection to the record.
        salt: Stands before what is hashed.
        held: By version, hashes of the withdrawn documents that its rows name, by crawl.
        blocking: The versions.
    """
    store = graph.store
    first = next((each for each in blocking if held[each]), blocking[0])
    used_in = {each.split("/")[1] for each in blocking}
    retired = sorted(used_in & (releases.every_name(store) - releases.names(store)))
    undo = "".join(f"`datamask retire {release} --undo`, " for release in retired)
    keys = sorted({"/".join(each.split("/")[1:-1]) for each in blocking})
    more = f" and {len(keys) - MOST_NAMED} more" if len(keys) > MOST_NAMED else ""
    return (
        f"{len(blocking)} current versions still use a withdrawn document, e.g. {first}"
        f"{_document(graph, connection, salt, held[first])}; they are of {', '.join(keys[:MOST_NAMED])}{more}: {undo}run "
        "all releases with the withdrawal before (`datamask run`, with every step and arm that made one configured; of "
        "several configurations each in turn), then purge with the same settings: of a stage that is off in them, what it "
        "made is removed"
    )


def _document(
    graph: Graph, connection: "duckdb.DuckDBPyConnection", salt: str, held: Mapping[str, list[str]]
) -> str:
    """One of these documents, the release that withdraws it, an entry that asks for it and one that reaches its text in any
    release; nothing where no current pool withdraws one.
    """
    names = [(crawl, name) for crawl, of_crawl in held.items() for name in of_crawl]
    if not names:
        return ""
    connection.execute("CREATE OR REPLACE TEMP TABLE in_the_way (crawl VARCHAR, hash VARCHAR)")
    connection.executemany("INSERT INTO in_the_way VALUES (?, ?)", names)
    for pool in (graph.manifests[each] for each in graph.of("pool") if each in graph.pointed):
        rows = duck.parts_sql(graph.store, [ref_of(pool)], "crawl, id, content_hash, exclusion")
        found = connection.execute(f"""
            SELECT crawl, id, content_hash FROM (SELECT *, {hashed_sql(salt, "id")} AS hash FROM {rows})
            SEMI JOIN in_the_way USING (crawl, hash) WHERE exclusion = 'takedown' ORDER BY ALL LIMIT 1
        """).fetchall()
        for crawl, name, content in found:
            entry = _entry(graph, connection, pool["location"], content)
            by = "" if entry is None else f" by pool.takedown's {entry}"
            return (
                f", which holds {name} of {crawl}; release {pool['key']} withdraws it{by}, and content:{content} reaches "
                "its text in every release"
            )
    return ""


def _entry(graph: Graph, connection: "duckdb.DuckDBPyConnection", pool: str, content: str) -> str | None:
    """The first entry by which a pool withdraws a content; ``None``: it is near one, or what was read is gone."""
    inputs = dict(graph.inputs(pool))
    documents = [ref for name, ref in inputs.items() if name.startswith("documents/")]
    requests = inputs.get("takedown")
    if requests is None or any(ref.location not in graph.manifests for ref in (*documents, requests)):
        return None
    find_named(connection, graph.store, requests, documents)
    found = connection.execute(
        f"""
        SELECT min(entry) FROM named JOIN {duck.parts_sql(graph.store, documents, "content_hash")} AS d
        USING (artefact_order, artefact_row) WHERE content_hash = ?
        """,
        [content],
    ).fetchall()
    entry: str | None = found[0][0]
    return entry
