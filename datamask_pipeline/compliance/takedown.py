"""What was asked to be withdrawn from a release, what was found, what was done, and what that cost. Writes nothing."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from datamask_pipeline import duck
from datamask_pipeline.compliance.cost import cost_of
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.stages.takedown_matches import find_named
from datamask_pipeline.storage import Ref, Store, require

if TYPE_CHECKING:
    import duckdb

#: Documents that are named for each entry.
_EXAMPLES: Final = 3

Report = dict[str, Any]


def takedown_report(store: Store, release: str) -> Report:
    """The export for one release, as JSON values.

    Returns:
        ``release``, ``pool`` (the artefact that applied it) and its date, ``robots`` (date and user agents of a snapshot),
        ``entries``: of each what was ``asked``, ``named`` (documents that it names), ``withdrawn`` (these and every copy of
        their contents), ``examples`` and what was ``done``; ``totals``; ``near_copies_left``: documents that some version
        of the record found to be near-copies of a withdrawn one by their embeddings, and that stay; ``cost``: of each arm,
        as `cost_of`.

    Raises:
        ConfigurationError: the record has no such release, or nothing was asked of it.
    """
    pool = require(store, "pool", release)
    manifest = store.manifest(pool)
    inputs = dict(inputs_of(manifest))
    if "takedown" not in inputs:
        raise ConfigurationError(
            f"nothing was withdrawn from release {release!r}: name it in `pool.takedown` or `pool.robots`, and run"
        )
    requests = inputs["takedown"]
    documents = [inputs[f"documents/{crawl}"] for crawl in manifest["basis"]["config"]["crawls"]]
    with tempfile.TemporaryDirectory() as scratch, duck.connect(store, Path(scratch)) as connection:
        find_named(connection, store, requests, documents)
        connection.execute(f"""
            CREATE TEMP TABLE documents AS
            SELECT part_order AS artefact_order, part_row AS artefact_row, crawl, id, representative_crawl,
                representative_id, exclusion
            FROM {duck.parts_sql(store, [pool])}
        """)
        entries = list(_entries(connection))
        totals = _totals(connection)
        near = _near_copies_left(connection, store, release)
    return {
        "release": release,
        "pool": pool.location,
        "decided_at": manifest["written_at"],
        "robots": store.manifest(requests)["basis"]["config"]["robots"],
        "entries": entries,
        "totals": totals,
        "near_copies_left": near,
        "cost": cost_of(store, release),
    }


def _entries(connection: "duckdb.DuckDBPyConnection") -> Iterator[Report]:
    """Every entry, those that name nothing too; of robots.txt files only those that withdraw something."""
    rows = connection.execute(f"""
        WITH groups AS (
            SELECT DISTINCT entry, representative_crawl, representative_id
            FROM named JOIN documents USING (artefact_order, artefact_row)
        ),
        withdrawn AS (
            SELECT entry, count(*) AS withdrawn FROM groups
            JOIN documents USING (representative_crawl, representative_id) GROUP BY entry
        ),
        found AS (
            SELECT entry, count(*) AS named,
                list({{'crawl': crawl, 'id': id}} ORDER BY artefact_order, artefact_row)[:{_EXAMPLES}] AS examples
            FROM named JOIN documents USING (artefact_order, artefact_row) GROUP BY entry
        )
        SELECT asked.entry, kind, coalesce(named, 0), coalesce(withdrawn, 0), coalesce(examples, [])
        FROM asked LEFT JOIN found USING (entry) LEFT JOIN withdrawn USING (entry)
        WHERE kind <> 'robots' OR named > 0 ORDER BY kind = 'robots', asked.entry
    """)
    for entry, kind, named, withdrawn, examples in rows.fetchall():
        done = (
            "withdrawn from the release, with all copies"
            if named
            else "nothing: it names no document of the release"
        )
        yield {
            "asked": entry,
            "kind": kind,
            "named": named,
            "withdrawn": withdrawn,
            "examples": examples,
            "done": done,
        }


def _totals(connection: "duckdb.DuckDBPyConnection") -> dict[str, int]:
    ((entries, unmatched, hosts, named, withdrawn),) = connection.execute("""
        SELECT
            (SELECT count(*) FROM asked WHERE kind <> 'robots'),
            (SELECT count(*) FROM asked WHERE kind <> 'robots' AND entry NOT IN (SELECT entry FROM named)),
            (SELECT count(*) FROM asked WHERE kind = 'robots'),
            (SELECT count(*) FROM (SELECT DISTINCT artefact_order, artefact_row FROM named)),
            (SELECT count(*) FROM documents WHERE exclusion = 'takedown')
    """).fetchall()
    return {
        "entries": entries,
        "entries_that_name_nothing": unmatched,
        "robots_hosts": hosts,
        "documents_named": named,
        "documents_withdrawn": withdrawn,
    }


def _near_copies_left(
    connection: "duckdb.DuckDBPyConnection", store: Store, release: str
) -> dict[str, Any] | None:
    """Near-copies of withdrawn documents that stay eligible, as far as the record knows; ``None``: none were sought.

    Known are groups of versions in which the withdrawn document was still eligible.
    """
    known = [manifest for manifest in store.all_manifests("copies") if manifest["key"] == release]
    if not known:
        return None
    refs = [Ref(**{name: manifest[name] for name in Ref.__slots__}) for manifest in known]
    rows = duck.parts_sql(store, refs, "crawl, id, near_copy_of_crawl, near_copy_of")
    found = connection.execute(f"""
        WITH members AS (
            SELECT artefact_order AS version, crawl, id, coalesce(near_copy_of_crawl, crawl) AS of_crawl,
                coalesce(near_copy_of, id) AS of_id FROM {rows}
        ),
        gone AS (SELECT crawl, id FROM documents WHERE exclusion = 'takedown')
        SELECT DISTINCT other.crawl, other.id FROM members
        SEMI JOIN gone USING (crawl, id)
        JOIN members AS other USING (version, of_crawl, of_id)
        ANTI JOIN gone ON gone.crawl = other.crawl AND gone.id = other.id ORDER BY ALL
    """).fetchall()
    examples = [{"crawl": crawl, "id": name} for crawl, name in found[:_EXAMPLES]]
    return {"documents": len(found), "examples": examples}
