"""Finds what a purge would erase and remove, and what stands in its way. Writes nothing.

The unit is a version. A superseded one that holds a withdrawn document is removed as a whole: a part of it would not be
what its manifest says. A current one has to be superseded before, by a run with the withdrawal; those of a crawl, which no
setting of a release changes, the purge itself supersedes by the same rows without these documents.
"""

import dataclasses
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from datamask_pipeline import duck, schema
from datamask_pipeline.compliance.graph import Graph, unswept
from datamask_pipeline.compliance.in_the_way import in_the_way
from datamask_pipeline.compliance.unfinished import unfinished_of
from datamask_pipeline.compliance.withdrawn import Withdrawn, find_withdrawn
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.stages import takedown
from datamask_pipeline.stages.takedown_unnamed import names_purged
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.ref import ref_of
from datamask_pipeline.storage.tombstones import (
    Erased,
    hashed_sql,
    purged_manifests,
    salt_of,
    tombstones,
    unnamed,
)
from datamask_pipeline.storage.whole import check_tables

if TYPE_CHECKING:
    import duckdb

#: What a crawl's rows lie in, each made from those before.
OF_A_CRAWL: Final = ("ingest", "rejected", "embed", "score")
#: What is trained or measured: standing results are told of, and stay. No run of a release makes an experiment's anew.
_OF_MODELS: Final = ("pretrain", "evaluate", "answers", "compare", "experiment")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a purge would do.

    Attributes:
        salt: Stands before an id when it is hashed.
        documents: By crawl, hashes of withdrawn ids that no purge has erased yet.
        contents: Hashes of the content hashes of what current pools withdraw.
        urls: Hashes of the addresses of what current pools withdraw.
        totals: By crawl, the new documents in numbers, as a tombstone keeps them.
        unnamed: All that the record is not to name from then on.
        used: Versions that made use of a withdrawn document, or were made of one that did, or may have: of a pool that
            an earlier purge removed.
        erased: Current versions of crawls that hold one of these documents, or of requests that name one; they are
            superseded without it.
        removed: Superseded versions that are removed, those of ``erased`` too; each with the hashes it holds, by crawl.
        texts: Of each superseded subset, by the hash of a withdrawn id, how many rows have that document's text, under
            whatever id.
        standing: Current models, results and reports that were made from one of these documents; they stay.
        kept: Superseded versions that stay because a standing model needs them.
        naming: Current versions of releases that still name one of these documents as withdrawn: a run supersedes them, and
            the purge after it removes them.
        unfinished: Where unfinished work lies that goes, as `unfinished_of`.
        versions: Every version that there was.
    """

    salt: str
    documents: Mapping[str, list[str]]
    contents: list[str]
    urls: list[str]
    totals: Mapping[str, Mapping[str, Any]]
    unnamed: Erased
    used: set[str]
    erased: list[str]
    removed: Mapping[str, Mapping[str, list[str]]]
    texts: Mapping[str, Mapping[str, int]]
    standing: list[str]
    kept: list[str]
    naming: list[str]
    unfinished: list[str]
    versions: frozenset[str]

    @property
    def is_empty(self) -> bool:
        """Whether earlier purges left nothing to be done."""
        return not (self.documents or self.erased or self.removed or self.unfinished)


def plan(store: Store, off: Collection[str] = ()) -> Plan:
    """What there is to be purged of documents that current pools withdraw, or that were purged before.

    Args:
        store: The record.
        off: Artefacts of stages that are switched off. No run supersedes what they made before, so it counts as superseded
            where no current version was made from it.

    Raises:
        ConfigurationError: nothing is withdrawn, or a current version still uses a withdrawn document.
        IntegrityError: a table that says what is withdrawn was altered; or a version was removed meanwhile.
    """
    graph = Graph(store)
    with unswept(store, graph.manifests):
        return _plan(graph, off)


def _plan(graph: Graph, off: Collection[str]) -> Plan:
    store, salt = graph.store, salt_of(graph.store)
    deciding = [each for each in graph.of("takedown", "pool") if each in graph.pointed]
    check_tables(store, *(ref_of(graph.manifests[each]) for each in deciding))
    with tempfile.TemporaryDirectory() as scratch, duck.connect(store, Path(scratch)) as connection:
        found = find_withdrawn(graph, connection, salt)
        if not connection.execute("SELECT count(*) FROM gone").fetchall()[0][0]:
            raise ConfigurationError(
                f"no current pool of {store.root_url} withdraws a document; name them in `pool.takedown`, and run"
            )
        held = {location: _held(graph, connection, location, salt) for location in graph.manifests}
        used = {location for location in graph.manifests if _used(graph, connection, location, salt, held)}
        subsets = [each for each in graph.of("materialise") if each not in graph.pointed]
        texts = {each: _texts(graph, connection, each, salt) for each in subsets}
        unfinished = unfinished_of(graph, connection, salt, found.documents, OF_A_CRAWL)
        used_before = _used_before(store) | _may_have_used(store, found.documents)
        tainted = _tainted(graph, used | used_before) & {*graph.manifests}
        nameless = _unnamed(store, salt, found)
        naming = {each for each in graph.of("takedown") if _names_purged(graph, each, nameless)}
        left = {each for each in graph.of(*off) if each in graph.pointed & tainted}
        left = {each for each in left if not (graph.resting_on([each]) & graph.pointed) - left}
        current = [location for location in sorted(graph.pointed - left) if location in tainted]
        erased = [each for each in graph.of(*OF_A_CRAWL) if each in graph.pointed and held[each]]
        erased += sorted(naming & graph.pointed)
        standing = [each for each in current if graph.manifests[each]["stage"] in _OF_MODELS]
        if blocking := [each for each in current if each not in (*erased, *standing)]:
            raise ConfigurationError(in_the_way(graph, connection, salt, held, blocking))
    holding = {each for each in graph.manifests if held[each] or each in tainted} | naming
    superseded = {each for each in holding if each not in graph.pointed} | {*erased} | left
    needed = {
        ref.location
        for each in standing
        for _, ref in graph.inputs(each)
        if graph.manifests[each]["stage"] == "pretrain" and ref.stage == "tokenizer"
    }
    removed = {each: held[each] for each in sorted(superseded - needed)}
    return Plan(
        salt=salt,
        documents=found.documents,
        contents=found.contents,
        urls=found.urls,
        totals=found.totals,
        unnamed=nameless,
        used=tainted,
        erased=erased,
        removed=removed,
        texts=texts,
        standing=standing,
        kept=sorted(superseded & needed),
        naming=[each for each in sorted(holding & graph.pointed - superseded) if held[each]],
        unfinished=unfinished,
        versions=frozenset(graph.manifests),
    )


def _unnamed(store: Store, salt: str, found: Withdrawn) -> Erased:
    """All that the record is not to name once these are purged."""
    before = unnamed(store)
    names = {name for of_crawl in found.documents.values() for name in of_crawl}
    hashes = {*names, *found.contents, *found.urls} | (before.hashes if before else frozenset())
    return Erased(salt, frozenset(hashes))


def _names_purged(graph: Graph, location: str, purged: Erased) -> bool:
    """Whether a version of a release's requests names what is purged."""
    rows = graph.store.read_table(ref_of(graph.manifests[location])).to_pylist()
    return any(names_purged(row, purged) for row in rows)


def _held(
    graph: Graph, connection: "duckdb.DuckDBPyConnection", location: str, salt: str
) -> dict[str, list[str]]:
    """The withdrawn documents that rows of a version name, as hashes, by crawl; none where it names no documents.

    Of a superseded version also those that have the content of one, under whatever id.
    """
    return _rows(graph, connection, location, salt, "true")


def _texts(graph: Graph, connection: "duckdb.DuckDBPyConnection", location: str, salt: str) -> dict[str, int]:
    """How many rows of a subset have the text of each withdrawn document, by the hash of its id."""
    manifest = graph.manifests[location]
    if not manifest["parts"]:
        return {}
    rows = duck.parts_sql(graph.store, [ref_of(manifest)], "content_hash")
    found = connection.execute(f"""
        SELECT w.hash, count(*) FROM (SELECT {hashed_sql(salt, "content_hash")} AS content FROM {rows})
        JOIN (SELECT DISTINCT hash, content FROM withdrawn) AS w USING (content) GROUP BY ALL ORDER BY ALL
    """)
    return dict(found.fetchall())


def _rows(
    graph: Graph, connection: "duckdb.DuckDBPyConnection", location: str, salt: str, condition: str
) -> dict[str, list[str]]:
    manifest = graph.manifests[location]
    table = schema.TABLES.get(manifest["stage"])
    if table is None or "id" not in table.columns.names or not manifest["parts"]:
        return {}
    crawl = "crawl" if "crawl" in table.columns.names else duck.literal(manifest["key"])
    needed = [name for name in ("id", "crawl", "exclusion", "content_hash") if name in table.columns.names]
    rows = duck.parts_sql(graph.store, [ref_of(manifest)], ", ".join(needed))
    name, is_gone = hashed_sql(salt, "id"), f"({crawl}, hash) IN (SELECT (crawl, hash) FROM gone)"
    if "content_hash" in needed and location not in graph.pointed:  # a current one's next run withdraws it
        is_gone += f" OR {hashed_sql(salt, 'content_hash')} IN (SELECT hash FROM gone_contents)"
    found = connection.execute(f"""
        SELECT DISTINCT {crawl}, {name} AS hash FROM {rows} WHERE ({is_gone}) AND {condition} ORDER BY ALL
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


def _used_before(store: Store) -> set[str]:
    """Versions that were purged as they had made use of a withdrawn document: what was made of them may still stand."""
    found = purged_manifests(store)
    return {
        location for location, manifest in found.items() if manifest.get("used", _would_have_used(manifest))
    }


def _would_have_used(manifest: Mapping[str, Any]) -> bool:
    """The same of a tombstone that does not say; a pool that withdraws all that it held did not."""
    held = sum(map(len, manifest["held"].values()))
    if manifest["stage"] == "pool":
        return held > manifest["counts"].get("dropped_takedown", 0)
    return manifest["stage"] not in (*OF_A_CRAWL, takedown.STAGE)


def _may_have_used(store: Store, documents: Mapping[str, Any]) -> set[str]:
    """Pools that are gone, of crawls from which a later purge, or this one, erases: nothing tells any more that they had
    none of these documents among their candidates.
    """
    found, later = set(), {*documents}
    for tombstone in reversed(tombstones(store)):
        for location, manifest in tombstone.removed.items():
            if manifest["stage"] == "pool" and later & {*manifest["basis"]["config"]["crawls"]}:
                found.add(location)
        later |= {crawl for crawl, names in tombstone.documents.items() if names}
    return found


def _tainted(graph: Graph, used: set[str]) -> set[str]:
    """These versions, and those without rows of documents that were made from them: tokenizers, models, curves, results."""

    def names_no_documents(location: str) -> bool:
        table = schema.TABLES.get(graph.manifests[location]["stage"])
        return table is None or "id" not in table.columns.names

    return graph.resting_on(used, names_no_documents)
