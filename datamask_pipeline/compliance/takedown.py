"""What was asked to be withdrawn from a release, what was found, what was done, and what that cost. Writes nothing."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from datamask_pipeline import duck
from datamask_pipeline.compliance.cost import cost_of
from datamask_pipeline.compliance.versions import Versions
from datamask_pipeline.errors import ConfigurationError, InternalError
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.stages.takedown_matches import find_named, find_purged
from datamask_pipeline.stages.takedown_unnamed import HIDDEN, HIDDEN_URL, TEXT, without_name
from datamask_pipeline.storage import Ref, Store, require
from datamask_pipeline.storage.ref import ref_of
from datamask_pipeline.storage.tombstones import Erased
from datamask_pipeline.storage.whole import check_tables

if TYPE_CHECKING:
    import duckdb

#: Documents that are named for each entry.
_EXAMPLES: Final = 3
#: The kind of what is withdrawn as it has the text of what a purge erased.
PURGED: Final = "purged"
#: What was done for an entry that names no document, and never named one that was purged since.
NOTHING: Final = "nothing: it names no document of the release"

Report = dict[str, Any]


def is_withdrawing(store: Store, release: str) -> bool:
    """Whether the current pool of a release withdraws what was asked, and all that it was made from stands."""
    versions = Versions(store)
    inputs = dict(inputs_of(store.manifest(require(store, "pool", release))))
    return "takedown" in inputs and not any(versions.purged_by(ref.location) for ref in inputs.values())


def takedown_report(store: Store, release: str) -> Report:
    """The export for one release, as JSON values.

    Returns:
        ``release``, ``pool`` (the artefact that applied it) and its date, ``requests`` (the artefact of what was asked),
        ``robots`` (date and user agents of a snapshot), ``entries``: of each what was ``asked``, ``named`` (documents that
        it names), ``by_text`` (how many of them as they have the text of one that it names in a crawl outside the release),
        ``withdrawn`` (all of these and every copy of their contents), ``examples`` and what was ``done``; of kind ``purged``
        is what no entry names and that has the text of what a purge erased, with ``asked_then``, the entries that the purge
        rested on, as its tombstone keeps them; ``totals``;
        ``near_copies_left``: ``documents`` that some version of the record put into one group of near-copies by embedding
        with a withdrawn one, and that can still be selected or are held out (``held_out`` of them), and of how many of the
        ``texts_withdrawn`` that can be known (``texts_compared``: before they were withdrawn); ``cost``: of each arm, as
        `cost_of`; ``purged``: every purge that erased documents of the release's crawls, as `Versions.purged_from`, each
        with its ``report`` of the release at that time.

        Between a purge and the next run, all but ``purged`` is what was told when the purge began.

    Raises:
        ConfigurationError: the record has no such release, or nothing was asked of it.
        IntegrityError: what the pool was made from was purged by an earlier version, whose tombstones keep no report.
    """
    pool = require(store, "pool", release)
    manifest, versions = store.manifest(pool), Versions(store)
    inputs = dict(inputs_of(manifest))
    purged = versions.purged_from(manifest)
    for each in purged:
        each["report"] = versions.tombstones[each["number"] - 1].reports.get(release)
    if "takedown" not in inputs and not purged and not manifest["counts"]["dropped_takedown"]:
        raise ConfigurationError(
            f"nothing was withdrawn from release {release!r}: name it in `pool.takedown` or `pool.robots`, and run"
        )
    documents = [inputs[f"documents/{crawl}"] for crawl in manifest["basis"]["config"]["crawls"]]
    requests = inputs.get("takedown")
    check_tables(store, pool)
    gone = [
        ref for ref in [*documents, *([requests] if requests else [])] if versions.purged_by(ref.location)
    ]
    if requests is not None and gone:
        report = versions.report(release, pool.location)
        if report is None:
            store.manifest(gone[0])  # says that it was purged
            raise InternalError(f"{gone[0].location} is purged, and stands")
        return {**report, "purged": purged}
    check_tables(store, *([requests] if requests else []))
    with tempfile.TemporaryDirectory() as scratch, duck.connect(store, Path(scratch)) as connection:
        find_named(connection, store, requests, documents)
        purges = find_purged(connection, store, documents)
        connection.execute(f"""
            CREATE TEMP TABLE documents AS
            SELECT part_order AS artefact_order, part_row AS artefact_row, crawl, id, representative_crawl,
                representative_id, exclusion, content_hash
            FROM {duck.parts_sql(store, [pool])}
        """)
        _leave_to_purges(connection, [*purges])
        entries = list(_entries(connection))
        totals = _totals(connection)
        near = _near_copies_left(connection, store, release)
    for entry in entries:
        entry["done"] = _done(entry, versions, release)
        if entry["kind"] == PURGED:
            entry["asked_then"] = purges[entry["asked"]].entries
    nothing = sum(entry["kind"] != "robots" and entry["done"] == NOTHING for entry in entries)
    return {
        "release": release,
        "pool": pool.location,
        "decided_at": manifest["written_at"],
        "requests": requests and requests.location,
        "robots": requests and store.manifest(requests)["basis"]["config"]["robots"],
        "entries": entries,
        "totals": totals
        | {
            "entries_that_name_nothing": nothing,
            "documents_purged": sum(each["documents"] for each in purged),
        },
        "near_copies_left": near,
        "cost": cost_of(versions, release) if requests else [],
        "purged": purged,
    }


def unnamed_report(store: Store, report: Report, purged: Erased) -> Report:
    """The report as a tombstone keeps it: no document is named in it."""
    shown: dict[str, str] = {}
    if report["requests"] is not None and store.fs.exists(f"{store.root}/{report['requests']}"):
        rows = store.read_table(ref_of(store.manifest_at(report["requests"]))).to_pylist()
        shown = {row["entry"]: without_name(row, purged)["entry"] for row in rows if row["kind"] != TEXT}
    entries = [
        {**entry, "asked": shown.get(entry["asked"], entry["asked"]), "examples": []}
        for entry in report["entries"]
    ]
    near = report["near_copies_left"] and {**report["near_copies_left"], "examples": []}
    kept = {name: value for name, value in report.items() if name != "purged"}
    return {**kept, "entries": entries, "near_copies_left": near}


def _done(entry: Report, versions: Versions, release: str) -> str:
    if entry["named"]:
        return "withdrawn from the release, with all copies"
    name = entry["asked"].rpartition(":")[2]
    for each in reversed(versions.tombstones):
        before = [
            one for one in each.reports.get(release, {}).get("entries", ()) if one["asked"] == entry["asked"]
        ]
        told = sum(one["withdrawn"] for one in before)
        if told:
            return f"purged by {each.title}: it named {before[0]['named']}, withdrawn with copies {told}"
    if entry["kind"] in (HIDDEN, HIDDEN_URL):  # later purges repeat the contents that stay withdrawn
        by = next((each for each in versions.tombstones if each.erases(name)), None)
        return NOTHING if by is None else f"purged by {by.title}"
    return NOTHING


def _leave_to_purges(connection: "duckdb.DuckDBPyConnection", purges: list[str]) -> None:
    """Add purges to `asked`, and leave to them in `named` what the pool withdrew and no entry names, nor a copy of it."""
    connection.execute("CREATE TEMP TABLE by_purge AS SELECT unnest(?::VARCHAR[]) AS entry", [purges])
    connection.execute(f"""
        INSERT INTO asked SELECT entry, '{PURGED}', NULL, NULL FROM by_purge;
        CREATE TEMP TABLE of_entries AS
        SELECT DISTINCT representative_crawl, representative_id
        FROM named ANTI JOIN by_purge USING (entry) JOIN documents USING (artefact_order, artefact_row);
        CREATE TEMP TABLE of_purges AS
        SELECT artefact_order, artefact_row
        FROM documents ANTI JOIN of_entries USING (representative_crawl, representative_id) WHERE exclusion = 'takedown';
        DELETE FROM named WHERE entry IN (FROM by_purge)
            AND (artefact_order, artefact_row) NOT IN (SELECT (artefact_order, artefact_row) FROM of_purges)
    """)


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
            SELECT entry, count(*) AS named, count(texts.content_hash) AS by_text,
                list({{'crawl': crawl, 'id': id}} ORDER BY artefact_order, artefact_row)[:{_EXAMPLES}] AS examples
            FROM named JOIN documents USING (artefact_order, artefact_row) LEFT JOIN texts USING (entry, content_hash)
            GROUP BY entry
        )
        SELECT asked.entry, kind, coalesce(named, 0), coalesce(by_text, 0), coalesce(withdrawn, 0), coalesce(examples, [])
        FROM asked LEFT JOIN found USING (entry) LEFT JOIN withdrawn USING (entry)
        WHERE kind NOT IN ('robots', '{PURGED}') OR named > 0 ORDER BY kind = 'robots', asked.entry
    """)
    for entry, kind, named, by_text, withdrawn, examples in rows.fetchall():
        yield {
            "asked": entry,
            "kind": kind,
            "named": named,
            "by_text": by_text,
            "withdrawn": withdrawn,
            "examples": examples,
        }


def _totals(connection: "duckdb.DuckDBPyConnection") -> dict[str, int]:
    ((entries, hosts, named, withdrawn),) = connection.execute(f"""
        SELECT
            (SELECT count(*) FROM asked WHERE kind NOT IN ('robots', '{PURGED}')),
            (SELECT count(*) FROM asked WHERE kind = 'robots'),
            (SELECT count(*) FROM (SELECT DISTINCT artefact_order, artefact_row FROM named)),
            (SELECT count(*) FROM documents WHERE exclusion = 'takedown')
    """).fetchall()
    return {
        "entries": entries,
        "robots_hosts": hosts,
        "documents_named": named,
        "documents_withdrawn": withdrawn,
    }


def _near_copies_left(
    connection: "duckdb.DuckDBPyConnection", store: Store, release: str
) -> dict[str, Any] | None:
    """Near-copies of withdrawn documents that stay in the release; ``None``: none were ever sought.

    Known are groups of versions in which the withdrawn document was still eligible: who was withdrawn before near-copies
    were sought was compared with nothing.
    """
    known = [manifest for manifest in store.all_manifests("copies") if manifest["key"] == release]
    if not known:
        return None
    refs = [Ref(**{name: manifest[name] for name in Ref.__slots__}) for manifest in known]
    rows = duck.parts_sql(store, refs, "crawl, id, near_copy_of_crawl, near_copy_of")
    connection.execute(f"""
        CREATE TEMP TABLE members AS
        SELECT artefact_order AS version, crawl, id, coalesce(near_copy_of_crawl, crawl) AS of_crawl,
            coalesce(near_copy_of, id) AS of_id FROM {rows};
        CREATE TEMP TABLE gone AS SELECT crawl, id, content_hash FROM documents WHERE exclusion = 'takedown'
    """)
    ((texts, compared),) = connection.execute("""
        SELECT (SELECT count(DISTINCT content_hash) FROM gone),
            (SELECT count(DISTINCT content_hash) FROM gone SEMI JOIN members USING (crawl, id))
    """).fetchall()
    found = connection.execute("""
        SELECT DISTINCT stays.crawl, stays.id, stays.exclusion IS NOT NULL FROM members
        SEMI JOIN gone USING (crawl, id)
        JOIN members AS other USING (version, of_crawl, of_id)
        JOIN documents AS stays ON stays.crawl = other.crawl AND stays.id = other.id
        WHERE coalesce(stays.exclusion, 'validation') = 'validation' ORDER BY ALL
    """).fetchall()
    return {
        "documents": len(found),
        "held_out": sum(is_held_out for *_, is_held_out in found),
        "texts_withdrawn": texts,
        "texts_compared": compared,
        "examples": [{"crawl": crawl, "id": name} for crawl, name, _ in found[:_EXAMPLES]],
    }
