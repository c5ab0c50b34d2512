"""What Dagster checks and shows of quality scores."""

from assets.checks import Artefact, Shown, Verdict, rows_in_are_kept_plus_dropped
from assets.metadata import Metadata, scalars, table
from datamask_pipeline import duck
from datamask_pipeline.stages import ingest, score

#: A crawl whose mean score lies further from the other crawls', in their standard deviations, is worth a look.
DRIFT = 0.5


def every_scorer_judges_every_document(artefact: Artefact) -> Verdict:
    """One row for each document and scorer."""
    documents = artefact.neighbour(ingest.STAGE)
    rows, pairs, scorers, unknown = artefact.query(
        f"""
        SELECT count(*), count(DISTINCT (s.id, s.scorer)), count(DISTINCT s.scorer), count(*) FILTER (d.id IS NULL)
        FROM {artefact.sql(columns="id, scorer")} AS s
        LEFT JOIN {artefact.sql(documents, "id")} AS d ON d.id = s.id
        """
    )
    return Verdict(
        rows == pairs == documents.rows * scorers and unknown == 0 and (scorers > 0 or documents.rows == 0),
        {"rows": rows, "documents": documents.rows, "scorers": scorers, "of unknown documents": unknown},
    )


def scores_are_finite_and_within_scale(artefact: Artefact) -> Verdict:
    """A score is a finite number on its scorer's scale, or null with a reason; never an error made a number."""
    return artefact.has_no(
        "scores that are off their scale, not finite, or missing without a reason",
        """
        CASE WHEN score IS NULL THEN coalesce(reason, '') = ''
        ELSE NOT isfinite(score) OR score < scale_min OR score > scale_max END
        """,
    )


def means_stay_near_other_crawls(artefact: Artefact) -> Verdict:
    """Each scorer's mean over the crawl lies near its mean over the record's other crawls."""
    store, crawl = artefact.pipeline.store, artefact.ref.key
    others = [artefact.neighbour(score.STAGE, key) for key in store.keys(score.STAGE) if key != crawl]
    if not others:
        return Verdict(True, {"other crawls": 0})
    read = "scorer, score"
    shifts: dict[str, float | None] = dict(
        artefact.rows(
            f"""
            SELECT scorer, (here.mean - there.mean) / nullif(there.spread, 0)
            FROM (SELECT scorer, avg(score) AS mean FROM {artefact.sql(columns=read)} GROUP BY 1) AS here
            JOIN (SELECT scorer, avg(score) AS mean, stddev(score) AS spread
                  FROM {duck.parts_sql(store, others, read)} GROUP BY 1) AS there USING (scorer)
            ORDER BY scorer
            """
        )
    )
    known = {name: shift for name, shift in shifts.items() if shift is not None}
    measured = {f"shift of {name}": shift for name, shift in known.items()}
    return Verdict(
        all(abs(shift) <= DRIFT for shift in known.values()), {"other crawls": len(others), **measured}
    )


def _headline(artefact: Artefact) -> Metadata:
    scorers = artefact.found["scorers"]
    rows = [{"scorer": name, **about, "documents": about.get("rows", 0)} for name, about in scorers.items()]
    means = {f"mean {name}": about.get("mean") for name, about in scorers.items()}
    columns = ("scorer", "model", "revision", "documents", "scored", "mean")
    return {"scorers": table(rows, *columns), **scalars(means, *means)}


SHOWN = {
    "quality_scores": Shown(
        blocking=(
            rows_in_are_kept_plus_dropped,
            every_scorer_judges_every_document,
            scores_are_finite_and_within_scale,
        ),
        warning=(means_stay_near_other_crawls,),
        headline=_headline,
    )
}
