"""Why a document is chosen on one side alone, as SQL over pools, near-copies, indexes and masks. Knows their columns.

Nothing is joined by id where two pools read the same version of a crawl: a document's row in the crawl says where it
stands in both.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from datamask_pipeline import duck
from datamask_pipeline.audit.selections import Selection
from datamask_pipeline.selection.reasons import BY_DRAW, BY_MARGINALS, BY_QUALITY, Decision
from datamask_pipeline.stages.gather import SCORE_PREFIX
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.ref import ref_of

if TYPE_CHECKING:
    import duckdb

Side = Literal["came", "went"]


def fill_changed(store: Store, side: Side, mine: Selection, other: Selection, *, are_others: bool) -> str:
    """Fills ``changed`` with what one side chose and the other did not."""
    here, there = ("before", "after") if side == "went" else ("after", "before")
    scores = _raw_scores(store, mine, other)
    score_joins = (
        ""
        if not scores
        else f"""
        LEFT JOIN {rows_of(store, mine.index, _columns(mine, store, scores))} AS i ON i.position = w.mine
        LEFT JOIN {rows_of(store, other.index, _columns(other, store, scores))} AS j ON j.position = w.other"""
    )
    other_score = " OR ".join(f"i.{name} IS DISTINCT FROM j.{name}" for name in scores) or "false"
    copies = other.copies
    near = (
        "(SELECT NULL::BIGINT AS position WHERE false)"
        if copies is None
        else f"(SELECT position FROM {rows_of(store, copies, 'position, near_copy_of')} WHERE near_copy_of IS NOT NULL)"
    )
    crawls = ", ".join(map(duck.literal, other.crawls))
    figures = "position, quality_marginal, diversity_marginal, threshold, reason"
    by_quality = "(s.quality_marginal - t.quality_marginal)"
    is_cut = f"s.reason IN {_words(BY_MARGINALS)}"
    above = f"({by_quality} - CASE WHEN {is_cut} THEN s.threshold - t.threshold ELSE 0 END)"
    by_diversity = "(s.diversity_marginal - t.diversity_marginal)"
    return f"""
        INSERT INTO changed
        WITH placed AS (SELECT position AS mine, {_other_position(mine, other, side)} AS other FROM chosen_{here}),
        w AS (SELECT mine, other FROM placed ANTI JOIN chosen_{there} AS c ON c.position = placed.other)
        SELECT {duck.literal(side)}, w.mine, m.crawl, m.domain, m.token_count, CASE
            WHEN m.crawl NOT IN ({crawls}) THEN 'crawl'
            WHEN w.other IS NULL THEN 'documents'
            WHEN o.exclusion IS NOT NULL THEN o.exclusion
            WHEN n.position IS NOT NULL THEN 'near_copy'
            WHEN s.position IS NULL THEN 'no_score'
            WHEN {str(are_others).lower()} THEN 'configuration'
            WHEN m.content_hash <> o.content_hash THEN 'text'
            WHEN {other_score} THEN 'score'
            WHEN s.reason IN {_words(BY_DRAW)} THEN 'draw'
            WHEN s.reason IN {_words(BY_QUALITY)} THEN 'quality'
            WHEN {by_diversity} < {above} THEN 'diversity'
            WHEN {by_diversity} >= {above} THEN 'quality'
            ELSE 'displaced' END
        FROM w
        JOIN {rows_of(store, mine.pool, "position, crawl, domain, token_count, content_hash")} AS m ON m.position = w.mine
        LEFT JOIN {rows_of(store, other.pool, "position, exclusion, content_hash")} AS o ON o.position = w.other
        LEFT JOIN {near} AS n ON n.position = w.other
        LEFT JOIN {rows_of(store, other.mask, figures)} AS s ON s.position = w.other
        LEFT JOIN {rows_of(store, mine.mask, figures)} AS t ON t.position = w.mine{score_joins}
    """


def _other_position(mine: Selection, other: Selection, side: Side) -> str:
    """SQL of a document's position in the other release; null where its crawl, or the document, is not there."""
    cases = []
    for crawl, first in mine.crawls.items():
        if crawl not in other.crawls:
            continue
        rows = next(
            part["rows"] for part, name in zip(mine.pool["parts"], mine.crawls, strict=True) if name == crawl
        )
        same = mine.digest("documents", crawl) == other.digest("documents", crawl)
        own, theirs = ("a", "b") if side == "went" else ("b", "a")
        place = (
            f"position + {other.crawls[crawl] - first}"
            if same
            else f"(SELECT {theirs} FROM matched WHERE matched.{own} = position)"
        )
        cases.append(f"WHEN position BETWEEN {first} AND {first + rows - 1} THEN {place}")
    return f"CASE {' '.join(cases)} END" if cases else "NULL::BIGINT"


def match_again(
    connection: "duckdb.DuckDBPyConnection", store: Store, old: Selection, new: Selection
) -> None:
    """Positions ``a`` and ``b`` of the documents of crawls that were ingested again between the two, by id.

    An id that a crawl repeats is matched in order.
    """
    connection.execute("CREATE TEMP TABLE matched (a BIGINT, b BIGINT)")
    for crawl in old.crawls:
        if crawl not in new.crawls or old.digest("documents", crawl) == new.digest("documents", crawl):
            continue
        sides = [
            "(SELECT position, id, row_number() OVER (PARTITION BY id ORDER BY position) AS number FROM "
            f"{rows_of(store, each.pool, 'position, id, crawl')} WHERE crawl = {duck.literal(crawl)})"
            for each in (old, new)
        ]
        connection.execute(
            f"INSERT INTO matched SELECT a.position, b.position FROM {sides[0]} AS a JOIN {sides[1]} AS b "
            "USING (id, number)"
        )


def _raw_scores(store: Store, mine: Selection, other: Selection) -> list[str]:
    """The columns of scores that the arm reads, as SQL; none where all crawls of both have the same scores."""
    common = [crawl for crawl in mine.crawls if crawl in other.crawls]
    if all(mine.digest("scores", crawl) == other.digest("scores", crawl) for crawl in common):
        return []
    weights = mine.mask["basis"]["config"]["scorers"]
    known = {name for each in (mine, other) for name in _score_columns(store, each)}
    names = {SCORE_PREFIX + name for name in weights} or known
    return sorted(map(duck.identifier, names & known))


def _score_columns(store: Store, selection: Selection) -> list[str]:
    return [name for name in _schema(store, selection) if name.startswith(SCORE_PREFIX)]


def _schema(store: Store, selection: Selection) -> Sequence[str]:
    ref = ref_of(selection.index)
    with store.part_file(ref, store.part_names(ref)[0]) as part:
        return list(part.schema_arrow.names)


def _columns(selection: Selection, store: Store, scores: Sequence[str]) -> str:
    """The scores of an index, null where it has none by that name."""
    own = {duck.identifier(name) for name in _score_columns(store, selection)}
    return ", ".join(["position", *(name if name in own else f"NULL::DOUBLE AS {name}" for name in scores)])


def rows_of(store: Store, manifest: Mapping[str, Any], columns: str) -> str:
    """Some columns of all rows of one version, as a subquery."""
    files = ", ".join(
        duck.file_literal(store, f"{store.root}/{manifest['location']}/{part['name']}.parquet")
        for part in manifest["parts"]
    )
    return f"(SELECT {columns} FROM read_parquet([{files}]))"


def _words(decision: Decision) -> str:
    words = [decision.out, decision.into, decision.out_all_the_same, decision.in_all_the_same]
    return "(" + ", ".join(duck.literal(word) for word in words if word) + ")"
