"""Texts that requests name in crawls outside a release and that the release has too. Knows content hashes; no text."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from datamask_pipeline import duck
from datamask_pipeline.lineage import canonical_json, sha256_text
from datamask_pipeline.stages.takedown_matches import Row, find_asked
from datamask_pipeline.stages.takedown_unnamed import TEXT
from datamask_pipeline.storage import Ref, Store

if TYPE_CHECKING:
    import duckdb


def crawls_elsewhere(store: Store, crawls: Collection[str]) -> dict[str, Ref]:
    """Documents of every crawl that stands in the record and is not among a release's, by crawl, sorted."""
    found = {crawl: store.current("ingest", crawl) for crawl in sorted(store.keys("ingest"))}
    return {crawl: ref for crawl, ref in found.items() if ref is not None and crawl not in crawls}


def digest_of(*documents: Mapping[str, Ref]) -> str:
    """Digest of the documents of crawls; what is given apart is told apart."""
    crawls = [[[crawl, ref.content_digest] for crawl, ref in of.items()] for of in documents]
    return sha256_text(canonical_json(crawls))


def texts_elsewhere(
    connection: "duckdb.DuckDBPyConnection",
    store: Store,
    requests: Sequence[Row],
    documents: Mapping[str, Ref],
    elsewhere: Mapping[str, Ref],
    snapshot: Mapping[str, Any] | None,
) -> list[Row]:
    """The contents, each once for each request that names it outside the release and not in it, and that the release has.

    Args:
        connection: A connection to the record.
        store: The record.
        requests: Rows of `schema.TAKEDOWN`.
        documents: Documents of each of the release's crawls.
        elsewhere: Of the others.
        snapshot: Date and crawlers of a robots snapshot.

    Returns:
        Rows of `schema.TAKEDOWN` with the request's entry.
    """
    refs = [*elsewhere.values(), *documents.values()]
    find_asked(connection, store, requests, refs, snapshot)
    contents = duck.parts_sql(store, refs, "content_hash")
    is_here = f"artefact_order >= {len(elsewhere)}"
    found = connection.execute(f"""
        WITH of_requests AS (
            SELECT DISTINCT entry, content_hash, {is_here} AS is_here
            FROM {contents} AS d JOIN named USING (artefact_order, artefact_row)
        ),
        outside AS (
            SELECT entry, content_hash FROM of_requests WHERE NOT is_here
            EXCEPT SELECT entry, content_hash FROM of_requests WHERE is_here
        )
        SELECT entry, content_hash FROM outside
        WHERE content_hash IN (SELECT content_hash FROM {contents} WHERE {is_here}) ORDER BY ALL
    """).fetchall()
    return [
        {"entry": entry, "kind": TEXT, "host": None, "value": content, "robots": None}
        for entry, content in found
    ]
