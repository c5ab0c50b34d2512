"""What Dagster checks of a release's candidates."""

from assets.checks import Artefact, Shown, Verdict, rows_in_are_kept_plus_dropped
from datamask_pipeline.stages import ingest, pool


def every_document_stands_once(artefact: Artefact) -> Verdict:
    """As many rows as the release's crawls have documents, numbered from 0 without a gap."""
    crawls = artefact.pipeline.release_crawls(artefact.release)
    documents = sum(artefact.neighbour(ingest.STAGE, crawl).rows for crawl in crawls)
    rows, positions, last = artefact.query(
        f"SELECT count(*), count(DISTINCT position), coalesce(max(position), -1) FROM {artefact.sql()}"
    )
    return Verdict(rows == documents == positions == last + 1, {"rows": rows, "documents": documents})


def eligible_contents_are_distinct(artefact: Artefact) -> Verdict:
    """Of several copies of a content, or documents of one id, at most one may be selected."""
    return artefact.finds_no(
        "repeated ids or contents",
        f"""
        SELECT 2 * count(*) - count(DISTINCT content_hash) - count(DISTINCT id)
        FROM {artefact.sql(columns="id, content_hash, eligible")} WHERE eligible
        """,
    )


def ineligible_documents_have_a_reason(artefact: Artefact) -> Verdict:
    """A document is eligible, or excluded for a known reason; never both, never neither."""
    known = ", ".join(f"'{reason}'" for reason in pool.EXCLUSIONS)
    return artefact.has_no(
        "documents of unclear eligibility",
        f"eligible = (exclusion IS NOT NULL) OR exclusion NOT IN ({known})",
    )


SHOWN = {
    "candidate_documents": Shown(
        blocking=(
            rows_in_are_kept_plus_dropped,
            every_document_stands_once,
            eligible_contents_are_distinct,
            ineligible_documents_have_a_reason,
        )
    )
}
