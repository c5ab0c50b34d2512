"""What Dagster checks and shows of the subset of one arm."""

import dagster as dg

from assets.checks import Artefact, Shown, Verdict, rows_in_are_kept_plus_dropped
from assets.metadata import Metadata, parts_schema
from datamask_pipeline import schema
from datamask_pipeline.stages import materialise, select


def ids_and_contents_are_distinct(artefact: Artefact) -> Verdict:
    """No id and no content stands twice."""
    return artefact.finds_no(
        "repeated ids or contents",
        f"""
        SELECT 2 * count(*) - count(DISTINCT id) - count(DISTINCT content_hash)
        FROM {artefact.sql(columns="id, content_hash")}
        """,
    )


def subset_is_the_mask(artefact: Artefact) -> Verdict:
    """Exactly the documents that the current mask selects: none outside it, none missing, all of its id."""
    mask = artefact.neighbour(select.STAGE)
    outside, missing, of_another = artefact.query(
        f"""
        SELECT count(*) FILTER (m.id IS NULL), count(*) FILTER (s.id IS NULL),
            count(*) FILTER (s.selection_id <> '{materialise.selection_id(mask)}')
        FROM {artefact.sql(columns="crawl, id, selection_id")} AS s
        FULL JOIN (SELECT crawl, id FROM {artefact.sql(mask, "crawl, id, selected")} WHERE selected) AS m
        ON m.crawl = s.crawl AND m.id = s.id
        """
    )
    measured = {"outside the mask": outside, "missing": missing, "of another selection": of_another}
    return Verdict(not any(measured.values()), measured)


def _headline(artefact: Artefact) -> Metadata:
    names = parts_schema(artefact.pipeline.store, artefact.ref).names
    return {"selection": str(artefact.found["selection"]), "dagster/column_lineage": column_lineage(names)}


def column_lineage(names: list[str]) -> dg.TableColumnLineage:
    """Which column of which asset each column of the subset comes from."""
    origins = {name: ("crawl_documents", name) for name in schema.DOCUMENTS.names}
    origins |= {name: ("selection_mask", name) for name in ("quality", "logit", "probability")}
    origins["num_copies"] = ("candidate_documents", "num_copies")
    of_index = [name for name in names if name.startswith("score_") or name == schema.NUM_NEAR_COPIES.name]
    origins |= {name: ("release_index", name) for name in of_index}
    return dg.TableColumnLineage(
        {
            name: [dg.TableColumnDep(dg.AssetKey(asset), column)]
            for name, (asset, column) in origins.items()
            if name in names
        }
    )


SHOWN = {
    "fineweb_mask": Shown(
        blocking=(rows_in_are_kept_plus_dropped, ids_and_contents_are_distinct, subset_is_the_mask),
        numbers=("tokens",),
        headline=_headline,
    )
}
