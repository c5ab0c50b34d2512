"""What Dagster checks and shows of selection: the mask of one arm, and how it was learnt."""

from assets.checks import Artefact, Shown, Verdict, rows_in_are_kept_plus_dropped
from assets.diff import difference
from assets.metadata import Metadata, scalars, sparkline
from datamask_pipeline import duck
from datamask_pipeline.selection.reasons import HELD, NEVER_JUDGED, PASSED_OVER
from datamask_pipeline.stages import pool


def budget_is_exact(artefact: Artefact) -> Verdict:
    """As many documents as the budget says; or as many tokens as fit. What an earlier release decided is not counted, and
    a ratio is not of its reserve; whoever goes on from a release adds what there is.
    """
    settings = artefact.settings
    decided = f"reason IN ({duck.literal(HELD)}, {duck.literal(PASSED_OVER)})"
    judged = artefact.count(f"NOT {decided}")
    if settings["num_tokens"] is not None:
        (tokens,) = artefact.query(
            f"""
            SELECT coalesce(sum(c.token_count), 0)::BIGINT FROM {artefact.sql(columns="crawl, id, selected, reason")} AS s
            JOIN {artefact.sql(artefact.neighbour(pool.STAGE, artefact.release), "crawl, id, token_count")} AS c
            ON c.crawl = s.crawl AND c.id = s.id WHERE s.selected AND s.reason <> {duck.literal(HELD)}
            """
        )
        budget = settings["num_tokens"]
        some = tokens > 0 or judged == 0
        return Verdict(some and tokens <= budget, {"selected tokens": tokens, "budget": budget})
    selected = artefact.count(f"selected AND NOT {decided}")
    budget = settings["num_documents"]
    if budget is None:
        reserve = artefact.found.get("given", {}).get("reserve", 0)
        budget = round(settings["ratio"] * (judged - reserve))
    elif "given" in artefact.found:
        budget = min(budget, judged)
    return Verdict(selected == budget, {"selected": selected, "budget": budget})


def every_document_stands_once(artefact: Artefact) -> Verdict:
    """No document is judged twice."""
    return artefact.finds_no(
        "repeated documents",
        f"SELECT count(*) - count(DISTINCT (crawl, id)) FROM {artefact.sql(columns='crawl, id')}",
    )


def only_candidates_are_judged(artefact: Artefact) -> Verdict:
    """Every row is an eligible candidate of the release; no other document is selected."""
    candidates = artefact.neighbour(pool.STAGE, artefact.release)
    return artefact.finds_no(
        "rows that are not eligible candidates",
        f"""
        SELECT count(*) FROM {artefact.sql(columns="crawl, id")} AS s
        LEFT JOIN {artefact.sql(candidates, "crawl, id, eligible")} AS c ON c.crawl = s.crawl AND c.id = s.id
        WHERE NOT coalesce(c.eligible, false)
        """,
    )


def numbers_are_finite(artefact: Artefact) -> Verdict:
    """Every number is finite, probabilities within 0..1; a number is null only where the row's reason says why.

    A document pruned by quality, or too long, was never judged by the learner, nor was one that an earlier release decided.
    Where no threshold decided, no reason may speak of one; a marginal may be unknown only there, or where quality or the
    logit decided.
    """
    return artefact.has_no(
        "rows with a number that is wrong or missing",
        f"""
        NOT coalesce(isfinite(quality) AND probability BETWEEN 0 AND 1
            AND CASE WHEN reason IN ({", ".join(map(duck.literal, NEVER_JUDGED))})
                THEN NOT selected AND logit IS NULL AND quality_marginal IS NULL AND diversity_marginal IS NULL
                    AND coalesce(isfinite(threshold), true)
                WHEN reason IN ({duck.literal(HELD)}, {duck.literal(PASSED_OVER)})
                THEN selected = (reason = {duck.literal(HELD)}) AND isfinite(logit)
                    AND quality_marginal IS NULL AND diversity_marginal IS NULL AND threshold IS NULL
                ELSE isfinite(logit) AND isfinite(quality_marginal)
                    AND CASE WHEN threshold IS NULL
                        THEN coalesce(isfinite(diversity_marginal), true) AND NOT contains(reason, 'threshold')
                        ELSE isfinite(threshold) AND contains(reason, 'threshold')
                            AND CASE WHEN regexp_matches(reason, 'quality|logit')
                                THEN coalesce(isfinite(diversity_marginal), true)
                                ELSE isfinite(diversity_marginal) END END
                END, false)
        """,
    )


def objective_beats_random(artefact: Artefact) -> Verdict:
    """Whatever learns scores above the mean of uniformly random masks."""
    found = artefact.found
    learns = artefact.settings["policy"] != "random"
    reached, random = found["objective"], found["objective_random"]
    better = reached is not None and random is not None and reached > random
    return Verdict(better or not learns, scalars(found, "objective", "objective_random"))


def objectives_are_finite(artefact: Artefact) -> Verdict:
    """The objective is a finite number at every step, and there is a step where anything was judged."""
    wrong = artefact.count("NOT coalesce(isfinite(objective), false)")
    stepped = artefact.ref.rows > 0 or artefact.found.get("num_blocks") == 0
    return Verdict(stepped and wrong == 0, {"steps": artefact.ref.rows, "without an objective": wrong})


def _headline(artefact: Artefact) -> Metadata:
    blocks, headline = artefact.found["blocks"], Metadata()
    if len(blocks) == 1:
        certificate = blocks[0]["certificate"]
        headline = {**scalars(certificate, "gap", "bound"), "certificate": str(certificate["method"])}
    headline["wall seconds of the learner"] = sum(float(block["timings"]["total"]) for block in blocks)
    return headline | _curve(artefact) | difference(artefact)


def _curve(artefact: Artefact) -> Metadata:
    curve = artefact.neighbour("learning_curve")
    return {"objective by step": sparkline(artefact.pipeline.store, curve, "objective")}


SHOWN = {
    "selection_mask": Shown(
        blocking=(
            rows_in_are_kept_plus_dropped,
            budget_is_exact,
            every_document_stands_once,
            only_candidates_are_judged,
            numbers_are_finite,
        ),
        warning=(objective_beats_random,),
        numbers=("objective", "objective_random", "quality_term", "diversity_term", "selected"),
        headline=_headline,
        plots=("learning_curve.png",),
    ),
    "learning_curve": Shown(blocking=(objectives_are_finite,), headline=_curve),
}
