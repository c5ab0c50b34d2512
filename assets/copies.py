"""What Dagster checks and shows of a release's near-copies."""

from assets.checks import Artefact, Shown, Verdict, rows_in_are_kept_plus_dropped
from assets.metadata import Metadata
from datamask_pipeline.stages import pool


def eligible_documents_stand_once(artefact: Artefact) -> Verdict:
    """The eligible candidates, each in its position: none missing, none more."""
    candidates = artefact.neighbour(pool.STAGE)
    return artefact.finds_no(
        "rows that are not the eligible candidate of their position, or lack one",
        f"""
        SELECT count(*) FROM {artefact.sql(columns="position, crawl, id")} AS n
        FULL JOIN (SELECT * FROM {artefact.sql(candidates, "position, crawl, id, eligible")} WHERE eligible) AS c
        ON c.position = n.position
        WHERE n.id IS DISTINCT FROM c.id OR n.crawl IS DISTINCT FROM c.crawl
        """,
    )


def representatives_stand_for_themselves(artefact: Artefact) -> Verdict:
    """What stands for a near-copy is an earlier document that is none, as near as the threshold or nearer."""
    columns = "position, crawl, id, near_copy_of_crawl, near_copy_of, cosine"
    threshold = float(artefact.settings["threshold"]) - 1e-6  # cosines are kept in float32
    return artefact.finds_no(
        "near-copies without a representative of their own",
        f"""
        SELECT count(*) FROM {artefact.sql(columns=columns)} AS n
        LEFT JOIN {artefact.sql(columns=columns)} AS r ON r.crawl = n.near_copy_of_crawl AND r.id = n.near_copy_of
        WHERE n.near_copy_of IS NOT NULL AND NOT coalesce(
            r.near_copy_of IS NULL AND r.position < n.position AND n.cosine >= {threshold}, false)
        """,
    )


def _headline(artefact: Artefact) -> Metadata:
    counts = artefact.manifest["counts"]
    return {"share of near-copies": counts["dropped_near_copy"] / counts["rows_in"]}


SHOWN = {
    "near_copies": Shown(
        blocking=(
            rows_in_are_kept_plus_dropped,
            eligible_documents_stand_once,
            representatives_stand_for_themselves,
        ),
        numbers=("threshold", "expected_recall", "largest_group"),
        headline=_headline,
    )
}
