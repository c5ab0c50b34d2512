"""What Dagster checks and shows of the subset of one arm."""

import tempfile
from pathlib import Path

from assets.checks import Artefact, Shown, Verdict, rows_in_are_kept_plus_dropped
from assets.metadata import Metadata
from datamask_pipeline import duck
from datamask_pipeline.look import measured
from datamask_pipeline.look.selected import Selected
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.report.plots import bars
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
    store = artefact.pipeline.store
    about = Selected(store, dict(inputs_of(artefact.manifest))["selection"])
    shown: Metadata = {"selection": str(artefact.found["selection"])}
    with tempfile.TemporaryDirectory() as scratch, duck.connect(store, Path(scratch)) as connection:
        for name, found in (
            ("quality", measured.quality(about, connection)),
            ("tokens", measured.length(about, connection)),
        ):
            if found.edges:
                span = f"from {found.edges[0]:.3g} to {found.edges[-1]:.4g}"
                shown[f"{name} before"] = f"|{bars(found.before)}| {span}"
                shown[f"{name} after"] = f"|{bars(found.after)}| {span}"
    return shown


SHOWN = {
    "fineweb_mask": Shown(
        blocking=(rows_in_are_kept_plus_dropped, ids_and_contents_are_distinct, subset_is_the_mask),
        numbers=("tokens", "without_token_count"),
        headline=_headline,
    )
}
