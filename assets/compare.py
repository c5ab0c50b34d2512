"""What Dagster checks and shows of the comparison of a release's arms."""

from typing import Any

import dagster as dg

from assets.checks import Artefact, Shown, Verdict
from assets.metadata import Metadata, image, scalars, table
from datamask_pipeline.pipeline.beside import ngram_figures_of, weak_models
from datamask_pipeline.printable import markdown_text
from datamask_pipeline.publish.behind import inputs_of
from datamask_pipeline.report.arms import caveat
from datamask_pipeline.report.comparison import final_rows, tasks_asked
from datamask_pipeline.report.plots import markers, small_plane


def every_run_is_in_it(artefact: Artefact) -> Verdict:
    """No configured run is missing from the table."""
    wanted = sorted(artefact.pipeline.config.run_names())
    (found,) = artefact.query(f"SELECT list_sort(list(DISTINCT run)) FROM {artefact.sql(columns='run')}")
    return Verdict(found == wanted, {"runs": len(found), "missing": sorted(set(wanted) - set(found))})


def arms_answered_the_same_questions(artefact: Artefact) -> Verdict:
    """For each task, all models were asked one and the same question set."""
    return artefact.finds_no(
        "tasks with several question sets",
        f"""
        SELECT count(*) FROM (
            SELECT task FROM {artefact.sql(columns="task, questions_digest, n, shots, headline")} WHERE headline
            GROUP BY task HAVING count(DISTINCT (questions_digest, n, shots)) > 1)
        """,
    )


def _headline(artefact: Artefact) -> Metadata:
    arms: list[dict[str, Any]] = artefact.found["arms"]
    columns = ["arm", "documents", "tokens", "objective_of", "objective", "gap", "bits_per_byte"]
    values = {
        f"{key} {arm['arm']}": arm[key] for arm in arms for key in ("objective", "bits_per_byte", "mean")
    }
    warnings = _warnings(artefact)
    return {
        **({"what these figures do not show": "; ".join(warnings)} if warnings else {}),
        "arms": table(arms, *columns, mean="mean of tasks"),
        "quality (upwards) and diversity of the arms": _plane(artefact),
        **scalars(values, *values),
    }


def _warnings(artefact: Artefact) -> list[str]:
    """What the printed table begins and ends with: why differences between arms may say nothing."""
    store = artefact.pipeline.store
    rows = final_rows(store.read_table(artefact.ref).to_pylist())
    found = weak_models(artefact.manifest, ngram_figures_of(store, artefact.manifest))
    near = caveat(tasks_asked([row for row in rows if row["headline"]]))
    return [*found, *([near] if near else [])]


def _plane(artefact: Artefact) -> dg.MarkdownMetadataValue:
    """The arms that it compared, so small that the page shows it at once; the grey lines cross at random masks."""
    points = {}
    for name, ref in inputs_of(artefact.manifest):
        if name.startswith("selections/"):
            found = artefact.pipeline.store.manifest(ref)["metadata"]
            points[str(found["arm"])] = (found["diversity_term"], found["quality_term"])
    shapes = {"o": "circle", "s": "square", "D": "diamond", "^": "up", "v": "down", "<": "left", ">": "right"}
    legend = ", ".join(f"{shapes[marker]}: {markdown_text(arm)}" for arm, marker in markers(points).items())
    return image(f"quality and diversity ({legend})", small_plane(points))


SHOWN = {
    "comparison_report": Shown(
        blocking=(every_run_is_in_it, arms_answered_the_same_questions),
        headline=_headline,
        plots=("differences.png",),
    )
}
