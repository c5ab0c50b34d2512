"""Why a document is chosen on one side alone, as SQL over pools, near-copies, indexes and masks. Knows their columns.

Nothing is joined by id where two pools read the same version of a crawl: a document's row in the crawl says where it
stands in both.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from datamask_pipeline import duck
from datamask_pipeline.audit.selections import Selection
from datamask_pipeline.selection.reasons import BY_DRAW, BY_MARGINALS, BY_QUALITY, Decision
from datamask_pipeline.stages.gather import SCORE_PREFIX
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.ref import ref_of

if TYPE_CHECKING:
    import duckdb

Side = Literal["came", "went"]
#: Who came or went, the side that chose it, and the other.
_SIDES: Final[tuple[tuple[Side, str, str], ...]] = (("went", "before", "after"), ("came", "after", "before"))


def find_changed(
    connection: "duckdb.DuckDBPyConnection", store: Store, old: Selection, new: Selection, *, are_others: bool
) -> None:
    """Make table ``changed``, and ``chosen_before`` of what the older mask chose.

    A row of ``changed`` is a document that one side chose: ``side``, ``mine`` (its position there), ``crawl``,
    ``domain``, ``tokens`` and ``reason``. Each table of the record is scanned once, for the documents in question alone.

    Args:
        connection: The database.
        store: The record.
        old: The older selection.
        new: The newer one.
        are_others: Whether the arm itself or its vectors have other settings.
    """
    execute = connection.execute
    named: dict[str, Selection] = {"before": old, "after": new}
    for name, selection in named.items():
        rows = rows_of(store, selection.mask, "position, selected")
        execute(f"CREATE TEMP TABLE chosen_{name} AS SELECT position FROM {rows} WHERE selected")
        # The cut of each block as a quality; under quotas, of the group whose cut is the lowest.
        rows = rows_of(store, selection.mask, "position, selected, quality, threshold, reason")
        execute(
            f"""
            CREATE TEMP TABLE cut_{name} AS SELECT threshold, min(quality) AS quality FROM {rows}
            WHERE selected AND reason = {duck.literal(BY_QUALITY.into)} GROUP BY threshold
            """
        )
    _match_again(connection, store, old, new)
    for side, here, there in _SIDES:
        place = _other_position(named[here], named[there], side)
        execute(
            f"""
            CREATE TEMP TABLE {side} AS
            WITH placed AS (SELECT position AS mine, {place} AS other FROM chosen_{here})
            SELECT mine, other FROM placed ANTI JOIN chosen_{there} AS c ON c.position = placed.other
            """
        )
    scores = _raw_scores(store, old, new)
    for (name, selection), own, others in zip(named.items(), ("went", "came"), ("came", "went"), strict=True):
        wanted = (
            f"SELECT mine AS position FROM {own} UNION ALL SELECT other FROM {others} WHERE other IS NOT NULL"
        )
        execute(f"CREATE TEMP TABLE wanted_{name} AS {wanted}")
        for kind, table, columns in _read(store, selection, scores, old, new):
            rows = f"{rows_of(store, table, '*')} SEMI JOIN wanted_{name} USING (position)"
            execute(f"CREATE TEMP TABLE {kind}_{name} AS SELECT position, {columns} FROM {rows}")
    execute(
        "CREATE TEMP TABLE changed (side VARCHAR, mine BIGINT, crawl VARCHAR, domain VARCHAR, tokens BIGINT, "
        "reason VARCHAR)"
    )
    for side, here, there in _SIDES:
        reason = _reason_sql(named[there].crawls, scores, are_others=are_others)
        kinds = {kind for kind, *_ in _read(store, named[there], scores, old, new)}
        near = (
            f"near_{there}"
            if "near" in kinds
            else "(SELECT NULL::BIGINT AS position, false AS is_near WHERE false)"
        )
        joined = f"LEFT JOIN {near} AS n ON n.position = w.other"
        if scores:
            joined += f" LEFT JOIN scores_{here} AS i ON i.position = w.mine"
            joined += f" LEFT JOIN scores_{there} AS j ON j.position = w.other"
        execute(
            f"""
            INSERT INTO changed SELECT {duck.literal(side)}, w.mine, m.crawl, m.domain, m.token_count, {reason}
            FROM {side} AS w JOIN pool_{here} AS m ON m.position = w.mine
            LEFT JOIN pool_{there} AS o ON o.position = w.other
            LEFT JOIN mask_{here} AS t ON t.position = w.mine
            LEFT JOIN mask_{there} AS s ON s.position = w.other
            LEFT JOIN cut_{here} AS c ON c.threshold = t.threshold
            LEFT JOIN cut_{there} AS d ON d.threshold = s.threshold
            {joined}
            """
        )


def _read(
    store: Store, selection: Selection, scores: Sequence[str], old: Selection, new: Selection
) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """What is read of the documents in question: a name, the table's manifest, and its columns beside `position`."""
    again = any(_is_again(crawl, old, new) for crawl in old.crawls)
    content = "content_hash" if again else "NULL::VARCHAR AS content_hash"
    yield "pool", selection.pool, f"crawl, domain, token_count, exclusion, {content}"
    yield "mask", selection.mask, "quality, quality_marginal, diversity_marginal, threshold, reason"
    if selection.copies is not None:
        yield "near", selection.copies, "near_copy_of IS NOT NULL AS is_near"
    if scores:
        yield "scores", selection.index, _columns(selection, store, scores)


def _reason_sql(crawls: Iterable[str], scores: Sequence[str], *, are_others: bool) -> str:
    """The first reason that holds of a document, by what both sides say of it."""
    other_score = " OR ".join(f"i.{name} IS DISTINCT FROM j.{name}" for name in scores) or "false"
    by_quality, by_diversity = (
        f"(s.{name}_marginal - t.{name}_marginal)" for name in ("quality", "diversity")
    )
    is_cut = f"s.reason IN {_words(BY_MARGINALS)}"
    above = f"({by_quality} - CASE WHEN {is_cut} THEN s.threshold - t.threshold ELSE 0 END)"
    return f"""CASE
        WHEN m.crawl NOT IN ({", ".join(map(duck.literal, crawls))}) THEN 'crawl'
        WHEN o.position IS NULL THEN 'documents'
        WHEN o.exclusion IS NOT NULL THEN o.exclusion
        WHEN n.is_near THEN 'near_copy'
        WHEN s.position IS NULL THEN 'no_score'
        WHEN {str(are_others).lower()} THEN 'configuration'
        WHEN m.content_hash <> o.content_hash THEN 'text'
        WHEN {other_score} THEN 'score'
        WHEN s.reason IN {_words(BY_DRAW)} THEN 'draw'
        WHEN s.reason = {duck.literal(BY_QUALITY.out_all_the_same)} AND t.quality = c.quality AND s.quality = d.quality
            THEN 'draw'
        WHEN s.reason IN {_words(BY_QUALITY)} THEN 'quality'
        WHEN {by_diversity} < {above} THEN 'diversity'
        WHEN {by_diversity} >= {above} THEN 'quality'
        ELSE 'displaced' END"""


def _is_again(crawl: str, old: Selection, new: Selection) -> bool:
    """Whether a crawl was ingested again between the two."""
    return crawl in new.crawls and old.digest("documents", crawl) != new.digest("documents", crawl)


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


def _match_again(
    connection: "duckdb.DuckDBPyConnection", store: Store, old: Selection, new: Selection
) -> None:
    """Positions ``a`` and ``b`` of the documents of crawls that were ingested again between the two, by id.

    An id that a crawl repeats is matched in order.
    """
    connection.execute("CREATE TEMP TABLE matched (a BIGINT, b BIGINT)")
    for crawl in old.crawls:
        if not _is_again(crawl, old, new):
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
    return ", ".join([*(name if name in own else f"NULL::DOUBLE AS {name}" for name in scores)])


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
