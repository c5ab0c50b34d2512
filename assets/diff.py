"""What Dagster shows of how a release's mask differs from the one before it; the audit finds the reasons."""

from typing import Any

from assets.checks import Artefact
from assets.metadata import Metadata, table
from datamask_pipeline.audit.diff import REASONS, compare_selections
from datamask_pipeline.audit.diff_reasons import SIDES
from datamask_pipeline.pipeline.order import release_before
from datamask_pipeline.stages import select

#: So many reasons stay below what a page shows without a click.
MOST_REASONS = 8


def difference(artefact: Artefact) -> Metadata:
    """Who came and who went since the release before, in documents by reason, as `datamask audit diff` tells it."""
    store, release = artefact.pipeline.store, artefact.release
    before = release_before(artefact.pipeline, release)
    arm = artefact.ref.key.partition("/")[2]
    mask = None if before is None else store.current(select.STAGE, f"{before}/{arm}")
    if mask is None:
        return {}
    found = compare_selections(store, mask, artefact.ref)
    rows: list[dict[str, Any]] = [
        {"": side, "documents": row["documents"], "why": REASONS[row["name"]][side]}
        for side in SIDES
        for row in found[side]["reasons"]
    ]
    return {
        f"diff from {before}": table(rows[:MOST_REASONS], "", "documents", "why"),
        **{f"diff: {side}": int(found[side]["documents"]) for side in SIDES},
        "diff: stayed": int(found["stayed"]),
    }
