"""Finds what a purge would erase and remove, and what stands in its way. Writes nothing.

The unit is a version. A superseded one that holds a withdrawn document is removed as a whole: a part of it would not be
what its manifest says. A current one has to be superseded before, by a run with the withdrawal; those of a crawl, which no
setting of a release changes, the purge itself supersedes by the same rows without these documents.
"""

import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from datamask_pipeline import duck, schema
from datamask_pipeline.compliance.graph import Graph
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.ref import ref_of
from datamask_pipeline.storage.tombstones import hashed_sql, salt_of, tombstones

if TYPE_CHECKING:
    import duckdb

#: What a crawl's rows lie in, each made from those before.
OF_A_CRAWL: Final = ("ingest", "rejected", "embed", "score")
#: What is trained or measured: standing results are told of, and stay.
_OF_MODELS: Final = ("pretrain", "evaluate", "answers", "compare")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a purge would do.

    Attributes:
        salt: Stands before an id when it is hashed.
        documents: By crawl, hashes of withdrawn ids that no purge has erased yet.
        contents: Hashes of the content hashes of what current pools withdraw.
        erased: Current versions of crawls that hold one of these documents, and are superseded without it.
        removed: Superseded versions that are removed, those of ``erased`` too; each with the hashes it holds, by crawl.
        standing: Current models, results and reports that were made from one of these documents; they stay.
        kept: Superseded versions that stay because a standing model needs them.
    """

    salt: str
    documents: Mapping[str, list[str]]
    contents: list[str]
    erased: list[str]
    removed: Mapping[str, Mapping[str, list[str]]]
    standing: list[str]
    kept: list[str]


def plan(store: Store) -> Plan:
    """What there is to be purged of documents that current pools withdraw, or that were purged before.

    Raises:
        ConfigurationError: nothing is withdrawn, or a current version still uses a withdrawn document.
    """
    graph, salt = Graph(store), salt_of(store)
    with tempfile.TemporaryDirectory() as scratch, duck.connect(store, Path(scratch)) as connection:
        new, contents = _withdrawn(graph, connection, salt)
        if not connection.execute("SELECT count(*) FROM gone").fetchall()[0][0]:
            raise ConfigurationError(
                f"no current pool of {store.root_url} withdraws a document; name them in `pool.takedown`, and run"
            )
        held = {location: _held(graph, connection, location, salt) for location in graph.manifests}
        used = {location for location in graph.manifests if _used(graph, connection, location, salt, held)}
    tainted = _tainted(graph, used)
    current = [location for location in sorted(graph.pointed) if location in tainted]
    erased = [each for each in graph.of(*OF_A_CRAWL) if each in graph.pointed and held[each]]
    standing = [each for each in current if graph.manifests[each]["stage"] in _OF_MODELS]
    if blocking := [each for each in current if each not in (*erased, *standing)]:
        raise ConfigurationError(
            f"{len(blocking)} current versions still use a withdrawn document, e.g. {blocking[0]}: run all releases with "
            "the withdrawal before (`datamask run`), then purge"
        )
    holding = {each for each in graph.manifests if held[each] or each in tainted}
    superseded = {each for each in holding if each not in graph.pointed} | {*erased}
    needed = {
        ref.location
        for each in standing
        for _, ref in graph.inputs(each)
        if graph.manifests[each]["stage"] == "pretrain" and ref.stage == "tokenizer"
    }
    removed = {each: held[each] for each in sorted(superseded - needed)}
    return Plan(salt, new, contents, erased, removed, standing, sorted(superseded & needed))


def _withdrawn(
    graph: Graph, connection: "duckdb.DuckDBPyConnection", salt: str
) -> tuple[dict[str, list[str]], list[str]]:
    """Make the table `gone` of crawls and hashes, of documents withdrawn or purged; those that are new, by crawl.

    Returns:
        The new ones, and the hashes of the contents that current pools withdraw.
    """
    known = {
        (crawl, name)
        for each in tombstones(graph.store)
        for crawl, names in each.documents.items()
        for name in names
    }
    refs = [ref_of(graph.manifests[each]) for each in graph.of("pool") if each in graph.pointed]
    found: set[tuple[str, str]] = set()
    contents: list[str] = []
    if refs:
        rows = duck.parts_sql(graph.store, refs, "crawl, id, content_hash, exclusion")
        withdrawn = f"FROM {rows} WHERE exclusion = 'takedown'"
        found = {
            *connection.execute(f"SELECT DISTINCT crawl, {hashed_sql(salt, 'id')} {withdrawn}").fetchall()
        }
        hashes = connection.execute(
            f"SELECT DISTINCT {hashed_sql(salt, 'content_hash')} {withdrawn}"
        ).fetchall()
        contents = sorted(name for (name,) in hashes)
    connection.execute("CREATE TEMP TABLE gone (crawl VARCHAR, hash VARCHAR)")
    if everything := sorted(found | known):
        connection.executemany("INSERT INTO gone VALUES (?, ?)", everything)
    new: dict[str, list[str]] = {}
    for crawl, name in sorted(found - known):
        new.setdefault(crawl, []).append(name)
    return new, contents


def _held(
    graph: Graph, connection: "duckdb.DuckDBPyConnection", location: str, salt: str
) -> dict[str, list[str]]:
    """The withdrawn documents that rows of a version name, as hashes, by crawl; none where it names no documents."""
    return _rows(graph, connection, location, salt, "true")


def _rows(
    graph: Graph, connection: "duckdb.DuckDBPyConnection", location: str, salt: str, condition: str
) -> dict[str, list[str]]:
    manifest = graph.manifests[location]
    table = schema.TABLES.get(manifest["stage"])
    if table is None or "id" not in table.columns.names or not manifest["parts"]:
        return {}
    crawl = "d.crawl" if "crawl" in table.columns.names else duck.literal(manifest["key"])
    needed = [name for name in ("id", "crawl", "exclusion") if name in table.columns.names]
    rows = duck.parts_sql(graph.store, [ref_of(manifest)], ", ".join(needed))
    found = connection.execute(f"""
        SELECT DISTINCT gone.crawl, gone.hash FROM {rows} AS d
        JOIN gone ON gone.crawl = {crawl} AND gone.hash = {hashed_sql(salt, "d.id")}
        WHERE {condition} ORDER BY ALL
    """)
    held: dict[str, list[str]] = {}
    for of_crawl, name in found.fetchall():
        held.setdefault(of_crawl, []).append(name)
    return held


def _used(
    graph: Graph,
    connection: "duckdb.DuckDBPyConnection",
    location: str,
    salt: str,
    held: Mapping[str, Mapping[str, Any]],
) -> bool:
    """Whether a version of a release made use of a withdrawn document; a pool that withdraws it does not."""
    stage = graph.manifests[location]["stage"]
    if stage in OF_A_CRAWL or not held[location]:
        return False
    if stage == "pool":
        return bool(_rows(graph, connection, location, salt, "exclusion IS DISTINCT FROM 'takedown'"))
    return True


def _tainted(graph: Graph, used: set[str]) -> set[str]:
    """These versions, and those without rows of documents that were made from them: tokenizers, models, curves, results."""

    def names_no_documents(location: str) -> bool:
        table = schema.TABLES.get(graph.manifests[location]["stage"])
        return table is None or "id" not in table.columns.names

    return graph.resting_on(used, names_no_documents)
