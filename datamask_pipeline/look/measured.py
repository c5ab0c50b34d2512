"""What a selection's page shows in numbers, counted by DuckDB over the record. Knows no plot and no HTML.

Every result is a few bins, groups or totals, so that neither memory nor the page grows with the documents. "Before" are the
documents that the arm chose from, "after" those that it chose.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from datamask_pipeline import duck
from datamask_pipeline.domains import registrable_domain
from datamask_pipeline.look.selected import Selected
from datamask_pipeline.token_totals import TOTALS_SQL

if TYPE_CHECKING:
    import duckdb

BINS: Final = 30
#: Groups of domains, languages or crawls that are named; the rest is summed up.
MOST_GROUPS: Final = 12
#: Bins of length per doubling.
_PER_DOUBLING: Final = 2


@dataclasses.dataclass(frozen=True)
class Distribution:
    """How documents lie before and after selection.

    Attributes:
        names: Groups, the largest first; of bins, none.
        edges: Ends of the bins, one more than there are; of groups, none.
        before: Documents in each that could be chosen.
        after: Documents in each that were chosen.
        unknown: Documents without a value, before and after.
        others: Documents of the groups that are not named, before and after.
        distinct: Groups that there are, before and after.
    """

    names: list[str]
    edges: list[float]
    before: list[int]
    after: list[int]
    unknown: tuple[int, int] = (0, 0)
    others: tuple[int, int] = (0, 0)
    distinct: tuple[int, int] = (0, 0)


def quality(about: Selected, connection: "duckdb.DuckDBPyConnection") -> Distribution:
    """The arm's own quality, in bins of equal width."""
    rows = _mask(about, "quality, selected")
    ((low, high),) = connection.execute(f"SELECT min(quality), max(quality) FROM {rows}").fetchall()
    width = (high - low) / BINS or 1.0
    found = connection.execute(
        f"""
        SELECT least(floor((quality - ?) / ?)::INTEGER, {BINS - 1}), count(*), count(*) FILTER (selected)
        FROM {rows} GROUP BY 1
        """,
        [low, width],
    ).fetchall()
    return _binned(found, range(BINS), [low + number * width for number in range(BINS + 1)])


def length(about: Selected, connection: "duckdb.DuckDBPyConnection") -> Distribution:
    """Tokens as the source counts them; every second bin begins at twice the tokens."""
    # `greatest` passes over NULL: without the CASE, a document of unknown length would be one of one token.
    found = connection.execute(
        f"""
        SELECT CASE WHEN i.token_count IS NOT NULL
                THEN floor({_PER_DOUBLING} * log2(greatest(i.token_count, 1)))::INTEGER END,
            count(*), count(*) FILTER (s.selected)
        FROM {_mask(about, "position, selected")} AS s
        JOIN {duck.parts_sql(about.store, [about.index], "position, token_count")} AS i USING (position) GROUP BY 1
        """
    ).fetchall()
    known = sorted(row[0] for row in found if row[0] is not None)
    places = range(known[0], known[-1] + 1) if known else range(0)
    return _binned(found, places, [2 ** (place / _PER_DOUBLING) for place in (*places, places.stop)])


def crawl(about: Selected, connection: "duckdb.DuckDBPyConnection") -> Distribution:
    """The crawls."""
    return _grouped(
        connection,
        f"SELECT crawl AS name, selected, count(*) AS n FROM {_mask(about, 'crawl, selected')} GROUP BY ALL",
    )


def language(about: Selected, connection: "duckdb.DuckDBPyConnection") -> Distribution:
    """Languages as the source states them."""
    return _grouped(
        connection,
        f"""
        SELECT d.language AS name, s.selected, count(*) AS n FROM {_mask(about, "position, selected")} AS s
        JOIN {positions_sql(about, "language")} AS d USING (position) GROUP BY ALL
        """,
    )


def domain(about: Selected, connection: "duckdb.DuckDBPyConnection") -> Distribution:
    """Registrable domains of the documents' addresses."""
    connection.create_function("registrable", registrable_domain, ["VARCHAR"], "VARCHAR")
    try:
        return _grouped(
            connection,
            f"""
            SELECT nullif(registrable(host), '') AS name, selected, sum(n)::BIGINT AS n FROM (
                SELECT i.domain AS host, s.selected, count(*) AS n FROM {_mask(about, "position, selected")} AS s
                JOIN {duck.parts_sql(about.store, [about.index], "position, domain")} AS i USING (position) GROUP BY ALL
            ) GROUP BY ALL
            """,
        )
    finally:
        connection.remove_function("registrable")


def tokens(
    about: Selected, connection: "duckdb.DuckDBPyConnection"
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Tokens before and after, as the source counts them; each with the documents that have no count."""
    found = connection.execute(
        f"""
        SELECT selected, {TOTALS_SQL}
        FROM {_mask(about, "position, selected")} AS s
        JOIN {duck.parts_sql(about.store, [about.index], "position, token_count")} AS i USING (position) GROUP BY 1
        """
    )
    rows = {selected: amount for selected, *amount in found.fetchall()}
    (chosen, unknown), (others, more) = rows.get(True, (0, 0)), rows.get(False, (0, 0))
    return (chosen + others, unknown + more), (chosen, unknown)


def overlap(
    arms: Mapping[str, Selected], connection: "duckdb.DuckDBPyConnection"
) -> dict[tuple[str, ...], int]:
    """How many documents were chosen by exactly these arms, by the arms' names."""
    chosen = " UNION ALL ".join(
        f"SELECT position, '{'1':0>{place + 1}}{'':0<{len(arms) - place - 1}}'::BIT AS arm "
        f"FROM {_mask(about, 'position, selected')} WHERE selected"
        for place, about in enumerate(arms.values())
    )
    found = connection.execute(
        f"SELECT arms::VARCHAR, count(*) FROM (SELECT bit_or(arm) AS arms FROM ({chosen}) GROUP BY position) GROUP BY 1"
    ).fetchall()
    return {
        tuple(name for name, bit in zip(arms, bits, strict=True) if bit == "1"): count
        for bits, count in found
    }


def shared(found: Mapping[tuple[str, ...], int], one: str, other: str) -> tuple[int, int]:
    """Documents that both arms chose, and those that either did."""
    both = sum(count for arms, count in found.items() if one in arms and other in arms)
    return both, sum(count for arms, count in found.items() if one in arms or other in arms)


def positions_sql(about: Selected, columns: str) -> str:
    """Columns of every document of the release, with its ``position``."""
    return documents_sql(about.store, list(about.documents.values()), columns)


def documents_sql(store: Any, refs: Sequence[Any], columns: str) -> str:
    """Columns of the documents of several artefacts, with their place among all of them as ``position``."""
    firsts, first = [], 0
    for ref in refs:
        firsts.append(first)
        first += ref.rows
    rows = duck.parts_sql(store, refs, columns)
    return f"(SELECT *, {firsts!r}[artefact_order + 1] + artefact_row AS position FROM {rows})"


def _mask(about: Selected, columns: str) -> str:
    return duck.parts_sql(about.store, [about.selection], columns)


def _binned(found: Sequence[tuple[Any, ...]], places: range, edges: list[float]) -> Distribution:
    by_place = {row[0]: row[1:] for row in found}
    before, after = ([by_place.get(place, (0, 0))[side] for place in places] for side in (0, 1))
    return Distribution([], edges, before, after, unknown=by_place.get(None, (0, 0)))


def _grouped(connection: "duckdb.DuckDBPyConnection", counted: str) -> Distribution:
    """The groups with most documents before selection, out of rows ``name, selected, n``; all others summed up."""
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE groups AS
        SELECT name, sum(n)::BIGINT AS before, coalesce(sum(n) FILTER (selected), 0)::BIGINT AS after
        FROM ({counted}) GROUP BY 1
        """
    )
    named = connection.execute(
        f"SELECT name, before, after FROM groups WHERE name IS NOT NULL ORDER BY 2 DESC, 3 DESC, 1 LIMIT {MOST_GROUPS}"
    ).fetchall()
    ((all_before, all_after, lost_before, lost_after, distinct_before, distinct_after),) = connection.execute(
        """
        SELECT coalesce(sum(before), 0)::BIGINT, coalesce(sum(after), 0)::BIGINT,
            coalesce(sum(before) FILTER (name IS NULL), 0)::BIGINT,
            coalesce(sum(after) FILTER (name IS NULL), 0)::BIGINT,
            count(name), count(name) FILTER (after > 0)
        FROM groups
        """
    ).fetchall()
    before, after = ([row[side] for row in named] for side in (1, 2))
    return Distribution(
        [str(row[0]) for row in named],
        [],
        before,
        after,
        unknown=(lost_before, lost_after),
        others=(all_before - lost_before - sum(before), all_after - lost_after - sum(after)),
        distinct=(distinct_before, distinct_after),
    )
