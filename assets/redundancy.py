"""What Dagster checks and shows of an arm's documents before anything is trained on them."""

from assets.checks import Artefact, Shown, Verdict
from assets.metadata import Metadata
from datamask_pipeline.stages import select


def figures_are_of_the_mask(artefact: Artefact) -> Verdict:
    """As many documents as the current mask selects; no count exceeds them, and every figure lies within its bounds."""
    (selected,) = artefact.query(
        f"SELECT count(*) FILTER (selected) FROM {artefact.sql(artefact.neighbour(select.STAGE), 'selected')}"
    )
    wrong = artefact.count(f"""
        NOT coalesce(documents = {int(selected)}
            AND exact_copies BETWEEN 0 AND documents - 1 AND near_copies BETWEEN 0 AND documents - 1
            AND quality_rank BETWEEN 0 AND 1 AND coverage BETWEEN -1.0001 AND 1.0001 AND coverage_error >= 0
            AND coverage_documents BETWEEN 1 AND pool_documents AND documents <= pool_documents, false)
    """)
    return Verdict(
        artefact.ref.rows == 1 and wrong == 0, {"selected": int(selected), "rows with wrong figures": wrong}
    )


def _headline(artefact: Artefact) -> Metadata:
    found = artefact.found
    return {
        "share of near-copies": found["near_copies"] / found["documents"],
        "share of exact copies": found["exact_copies"] / found["documents"],
    }


SHOWN = {
    "subset_redundancy": Shown(
        blocking=(figures_are_of_the_mask,),
        numbers=("documents", "tokens", "without_tokens", "quality_rank", "coverage", "coverage_error"),
        headline=_headline,
    )
}
