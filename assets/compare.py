"""What Dagster checks and shows of the comparison of a release's arms."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets.checks import Artefact, Shown, Verdict, none_found
from assets.metadata import Metadata
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.storage import Ref


def every_run_is_in_it(artefact: Artefact) -> Verdict:
    """No configured run is missing from the table."""
    wanted = sorted(artefact.pipeline.config.run_names())
    (found,) = artefact.query(f"SELECT list_sort(list(DISTINCT run)) FROM {artefact.sql(columns='run')}")
    return Verdict(found == wanted, {"runs": len(found), "missing": sorted(set(wanted) - set(found))})


def arms_answered_the_same_questions(artefact: Artefact) -> Verdict:
    """For each task, all models were asked one and the same question set."""
    (unequal,) = artefact.query(
        f"""
        SELECT count(*) FROM (
            SELECT task FROM {artefact.sql(columns="task, questions_digest, n, shots, headline")} WHERE headline
            GROUP BY task HAVING count(DISTINCT (questions_digest, n, shots)) > 1)
        """
    )
    return none_found(unequal, "tasks with several question sets")


def _headline(pipeline: Pipeline, ref: Ref, manifest: Mapping[str, Any]) -> Metadata:
    arms: list[dict[str, Any]] = manifest["metadata"]["arms"]
    lines = [
        "| arm | documents | tokens | objective of | objective | gap | bits per byte | mean of tasks |",
        "|---" * 8 + "|",
    ]
    headline: Metadata = {}
    for arm in arms:
        tokens = "-" if arm["tokens"] is None else f"{arm['tokens']:,}"
        cells = [f"{arm['documents']:,}", tokens, arm["objective_of"]]
        cells += [_number(arm[name]) for name in ("objective", "gap", "bits_per_byte", "mean")]
        lines.append(f"| {arm['arm']} | {' | '.join(cells)} |")
        for name in ("objective", "bits_per_byte", "mean"):
            if arm[name] is not None:
                headline[f"{name} {arm['arm']}"] = float(arm[name])
    return {"arms": dg.MetadataValue.md("\n".join(lines)), **headline}


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


SHOWN = {
    "comparison_report": Shown(
        blocking=(every_run_is_in_it, arms_answered_the_same_questions),
        headline=_headline,
        plots=("differences.png",),
    )
}
