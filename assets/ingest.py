"""What Dagster checks of ingestion: documents, and the rows that did not become one."""

from assets.checks import Artefact, Shown, Verdict, rows_in_are_kept_plus_dropped
from assets.metadata import Metadata, table
from datamask_pipeline.stages import ingest


def ids_are_unique(artefact: Artefact) -> Verdict:
    """No id stands twice in a crawl."""
    sql = f"SELECT count(*) - count(DISTINCT id) FROM {artefact.sql(columns='id')}"
    return artefact.finds_no("repeated ids", sql)


def every_text_says_something(artefact: Artefact) -> Verdict:
    """No text or id is null or blank."""
    return artefact.has_no("blank texts or ids", "text IS NULL OR trim(text) = '' OR id IS NULL OR id = ''")


def every_rejection_has_a_reason(artefact: Artefact) -> Verdict:
    """No row was dropped without saying why."""
    return artefact.has_no("rejections without a reason", "reason IS NULL OR reason = ''")


def rejected_rows_are_the_dropped_ones(artefact: Artefact) -> Verdict:
    """As many rows as ingestion counted as dropped, but for what was purged from the record."""
    documents = artefact.neighbour(ingest.STAGE)
    counts = artefact.pipeline.store.manifest(documents)["counts"]
    dropped = counts["rows_in"] - counts["kept"] - counts.get("dropped_erased", 0)
    return Verdict(artefact.ref.rows == dropped, {"rejected": artefact.ref.rows, "dropped": dropped})


def some_rows_became_documents(artefact: Artefact) -> Verdict:
    """Not every row was rejected: a crawl of which all are has files of another kind, or a setting rejects them all."""
    counts = artefact.manifest["counts"]
    dropped = {name: number for name, number in counts.items() if name.startswith("dropped_") and number}
    return Verdict(counts["kept"] > 0, {"rows_in": counts["rows_in"], "kept": counts["kept"], **dropped})


def _headline(artefact: Artefact) -> Metadata:
    found = artefact.rows(
        f"""
        SELECT reason, count(*), first(shard ORDER BY shard, "row"), first("row" ORDER BY shard, "row"),
            first(detail ORDER BY shard, "row")
        FROM {artefact.sql(columns='reason, shard, "row", detail')} GROUP BY reason ORDER BY 2 DESC, 1
        """
    )
    columns = ("reason", "rows", "file of the first", "its row", "what decided")
    rows = [dict(zip(columns, each, strict=True)) for each in found]
    return {"reasons": table(rows, *columns)} if rows else {}


SHOWN = {
    "crawl_documents": Shown(
        blocking=(rows_in_are_kept_plus_dropped, ids_are_unique, every_text_says_something),
        warning=(some_rows_became_documents,),
    ),
    "rejected_documents": Shown(
        blocking=(every_rejection_has_a_reason, rejected_rows_are_the_dropped_ones), headline=_headline
    ),
}
