"""Documents of a stage by filter, page by page, out of the record by DuckDB. Knows no HTML and no vector.

Pages go on behind the last row seen (keyset), so that a late page costs what the first one does.
"""

import dataclasses
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from datamask_pipeline import domains, duck
from datamask_pipeline.errors import ConfigurationError, UnknownNameError
from datamask_pipeline.look.cut import cut_sql
from datamask_pipeline.look.measured import documents_sql
from datamask_pipeline.look.rows import Rows
from datamask_pipeline.look.selected import Selected, selected
from datamask_pipeline.selection.reasons import NEVER_JUDGED
from datamask_pipeline.storage import Store

if TYPE_CHECKING:
    import duckdb

#: Where documents can be looked at, with the views that each has.
STAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "selection": ("all", "kept", "dropped", "borderline", "copies"),
    "pool": ("all", "kept", "dropped", "copies"),
    "crawl": ("all",),
    "rejected": ("all",),
}
PAGE_ROWS: Final = 25
#: A search ends after so long, and goes on from there when it is asked to.
SEARCH_SECONDS: Final = 4.0
#: Rows among which a page in the record's order is sought first.
_FIRST_STRETCH: Final = 32_768

#: How far a document is from its cut, by what the reason says was compared.
_DISTANCE = f"""CASE WHEN reason IN ({", ".join(map(duck.literal, NEVER_JUDGED))}) THEN NULL
    WHEN contains(reason, 'quality') THEN abs(quality - cut)
    WHEN contains(reason, 'logit') THEN abs(logit - cut)
    ELSE abs(quality_marginal + diversity_marginal - cut) END"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Query:
    """What is asked for.

    Attributes:
        stage: One of ``STAGES``.
        release: The release; of stages ``crawl`` and ``rejected``, none.
        arm: Its arm.
        view: One of the stage's views.
        crawl: Only of this crawl.
        domain: Only of this host or those under it.
        language: Only of this language.
        reason: Only with this reason.
        text: Only with this in the text, whatever the case of its letters; of rejected rows, in id or detail.
        seed: In a random order by this seed.
        after: The last row seen: what it is ordered by, and its position.
    """

    stage: str = "selection"
    release: str = ""
    arm: str = ""
    view: str = "all"
    crawl: str = ""
    domain: str = ""
    language: str = ""
    reason: str = ""
    text: str = ""
    seed: int | None = None
    after: tuple[float, int] | None = None


@dataclasses.dataclass(frozen=True)
class Page:
    """Some rows of a listing.

    Attributes:
        rows: Column by name; ``position``, ``crawl`` and ``id`` always, ``text`` where the stage has texts.
        after: Where the next page begins; ``None``: there is none.
        searched: Positions that a search has been through, from and to; ``None``: nothing was searched.
    """

    rows: list[dict[str, Any]]
    after: tuple[float, int] | None
    searched: tuple[int, int] | None = None


class Listing:
    """The documents of one stage, and of one arm where the stage has arms.

    Args:
        store: The record.
        query: What is asked for.

    Raises:
        ConfigurationError: what is asked for does not go together.
        UnknownNameError: no such stage, view, release, arm or crawl.
    """

    def __init__(self, store: Store, query: Query) -> None:
        self.store, self.query = store, query
        if query.stage not in STAGES:
            raise UnknownNameError("stage", query.stage, STAGES)
        if query.view not in STAGES[query.stage]:
            raise UnknownNameError(f"view of stage {query.stage!r}", query.view, STAGES[query.stage])
        if query.view == "borderline" and query.seed is not None:
            raise ConfigurationError("borderline documents stand by their distance: leave out the seed")
        if query.text and (query.seed is not None or query.view == "borderline"):
            raise ConfigurationError(
                "a search goes in the record's order: leave out the seed and view 'borderline'"
            )
        self.about: Selected | None = None
        if query.stage in ("selection", "pool"):
            if not query.release and (keys := store.keys("select")):
                raise ConfigurationError(
                    f"stage {query.stage!r} is of one release and arm; choose one of: {', '.join(keys)}"
                )
            self.about = selected(store, query.release, query.arm or None)
            refs = self.about.documents
        else:
            artefact = "ingest" if query.stage == "crawl" else "rejected"
            found = {key: store.current(artefact, key) for key in store.keys(artefact)}
            refs = {key: ref for key, ref in found.items() if ref is not None}
        self.rows = Rows(store, refs)
        if query.crawl and query.crawl not in refs:
            raise UnknownNameError("crawl", query.crawl, refs)

    def page(self, connection: "duckdb.DuckDBPyConnection") -> Page:
        """The next rows."""
        if not self.rows.total:
            return Page([], None)
        if self.query.text and self.query.stage != "rejected":
            return self._searched(connection)
        found = self._in_order(connection) if self._order == "position" else self._places(connection, "true")
        rows = self._full(connection, [position for _, position in found[:PAGE_ROWS]])
        return Page(self._with_texts(rows), found[PAGE_ROWS - 1] if len(found) > PAGE_ROWS else None)

    def _in_order(self, connection: "duckdb.DuckDBPyConnection") -> list[tuple[float, int]]:
        """Places in the record's order, sought in ever larger stretches: where many rows pass, the first one is enough."""
        begin = 0 if self.query.after is None else self.query.after[1] + 1
        found: list[tuple[float, int]] = []
        stretch = _FIRST_STRETCH
        while begin < self.rows.total and len(found) <= PAGE_ROWS:
            end = begin + stretch
            stretch_only = f"position BETWEEN {begin} AND {end - 1}"
            found += self._places(connection, stretch_only, between=(begin, end))
            begin, stretch = begin + stretch, 8 * stretch
        return found

    def _searched(self, connection: "duckdb.DuckDBPyConnection") -> Page:
        """Rows whose text holds what is sought, until a page is full or the time is over."""
        import pyarrow.compute as pc

        query, deadline = self.query, time.monotonic() + SEARCH_SECONDS
        begin = last = -1 if query.after is None else query.after[1]
        found: list[int] = []
        hits: list[int] = []
        for first, values in self.rows.scan("text", begin, query.crawl or None):
            matches = pc.match_substring(values, query.text, ignore_case=True)
            hits += (first + pc.indices_nonzero(matches).to_numpy()).tolist()
            last, over = first + len(values) - 1, time.monotonic() > deadline
            if over or len(hits) > PAGE_ROWS:
                found += self._of(connection, hits)
                hits = []
            if over or len(found) > PAGE_ROWS:
                break
        else:
            found += self._of(connection, hits)
            last = self.rows.total - 1
        if len(found) > PAGE_ROWS:
            found = found[:PAGE_ROWS]
            last = found[-1]
        rows = self._full(connection, found)
        after = (float(last), last) if last < self.rows.total - 1 else None
        return Page(self._with_texts(rows), after, searched=(begin + 1, last))

    def _of(self, connection: "duckdb.DuckDBPyConnection", positions: list[int]) -> list[int]:
        """Those of the positions that the other filters let through, in order."""
        if not positions:
            return []
        return [position for _, position in self._places(connection, _among(positions), most=len(positions))]

    @property
    def _order(self) -> str:
        """What rows stand by, a number; those of equal numbers by position."""
        if self.query.view == "borderline":
            return "distance"
        if self.query.seed is not None:
            return f"hash(position, {int(self.query.seed)}) / 18446744073709551616"
        return "position"

    def _places(
        self,
        connection: "duckdb.DuckDBPyConnection",
        condition: str,
        *,
        most: int = PAGE_ROWS + 1,
        between: tuple[int, int] | None = None,
    ) -> list[tuple[float, int]]:
        """Of the rows that the filters let through, what they stand by and their positions; no other column is read."""
        conditions, bound = [condition], []
        for text, value in self._filters():
            conditions.append(text)
            bound += value
        if self.query.after is not None:
            conditions.append("(place, position) > (?::DOUBLE, ?::BIGINT)")
            bound += self.query.after
        return connection.execute(
            f"""
            SELECT place, position FROM (SELECT *, ({self._order})::DOUBLE AS place FROM {self._sql(between)})
            WHERE place IS NOT NULL AND {" AND ".join(conditions)} ORDER BY place, position LIMIT {int(most)}
            """,
            bound,
        ).fetchall()

    def _full(self, connection: "duckdb.DuckDBPyConnection", positions: list[int]) -> list[dict[str, Any]]:
        """The rows at positions, in that order."""
        if not positions:
            return []
        cursor = connection.execute(
            f"SELECT * FROM {self._sql((min(positions), max(positions) + 1))} WHERE {_among(positions)}"
        )
        names = [description[0] for description in cursor.description or []]
        rows = {
            row["position"]: row
            for row in (dict(zip(names, values, strict=True)) for values in cursor.fetchall())
        }
        return [rows[position] for position in positions]

    def _filters(self) -> Iterator[tuple[str, list[Any]]]:
        query = self.query
        if query.view in ("kept", "dropped"):
            yield ("kept" if query.view == "kept" else "NOT kept"), []
        if query.view == "copies":
            yield "(num_copies > 1 OR is_near_copy)", []
        for column in ("crawl", "reason", "language"):
            if value := getattr(query, column):
                yield f"{column} = ?", [value]
        if query.domain:
            host = domains.without_www(domains.canonical_host(query.domain))
            told = "(domain = ? OR ends_with(domain, ?))"
            if query.stage == "crawl":  # the host is cut out of few addresses only
                few = f"contains(lower(url), ?) OR {domains.may_respell_sql('url')}"
                yield f"CASE WHEN {few} THEN {told} ELSE false END", [host, host, f".{host}"]
            else:
                yield told, [host, f".{host}"]
        if query.text and query.stage == "rejected":
            yield (
                "(contains(lower(id), lower(?)) OR contains(lower(detail), lower(?)))",
                [query.text, query.text],
            )

    def _sql(self, between: tuple[int, int] | None) -> str:
        """The stage's rows with what filters and pages need; what they do not need is not read.

        Tables with positions of their own pass over row groups by these; of others only the stretch is read.
        """
        query, about = self.query, self.about
        if about is None:
            if query.stage == "rejected":
                columns = "crawl, id, false AS kept, reason, detail, '' AS domain, '' AS language"
            else:
                columns = f"crawl, id, url, true AS kept, '' AS reason, {domains.domain_sql('url')} AS domain, language"
            return self.rows.sql(columns, *(between or (0, self.rows.total)))
        pool = "position, crawl, id, domain, token_count, num_copies, eligible, exclusion, representative_id"
        if query.stage == "pool":
            told = "*, eligible AS kept, coalesce(exclusion, 'eligible') AS reason"
            rows = f"(SELECT {told} FROM {duck.parts_sql(self.store, [about.candidates], pool)})"
        else:
            mask = (
                "position, crawl, id, selected AS kept, reason, quality, quality_marginal, diversity_marginal, threshold, "
                "logit, probability"
            )
            rows = duck.parts_sql(self.store, [about.selection], mask)
            of_hosts = about.manifest["basis"]["config"]["quota_by"] == "domain"
            if query.domain or query.view == "copies" or of_hosts:
                few = duck.parts_sql(
                    self.store, [about.candidates], "position, domain, num_copies, token_count"
                )
                rows = (
                    f"(SELECT m.*, c.domain, c.num_copies FROM {rows} AS m JOIN {few} AS c USING (position))"
                )
            compared = f"(SELECT *, {cut_sql(about.manifest, 'domain')} AS cut FROM {rows})"
            rows = f"(SELECT *, {_DISTANCE} AS distance FROM {compared})"
        if query.language:
            spoken = documents_sql(self.store, list(about.documents.values()), "language")
            rows = f"(SELECT m.*, d.language FROM {rows} AS m JOIN {spoken} AS d USING (position))"
        if query.view == "copies":
            near = "(SELECT -1::BIGINT AS position, false AS is_near_copy)"
            if about.near_copies is not None:
                told = "position, near_copy_of IS NOT NULL OR num_near_copies > 1 AS is_near_copy"
                near = duck.parts_sql(self.store, [about.near_copies], told)
            told = "m.*, coalesce(n.is_near_copy, false) AS is_near_copy"
            rows = f"(SELECT {told} FROM {rows} AS m LEFT JOIN {near} AS n USING (position))"
        return rows

    def _with_texts(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows with what else is shown of their documents."""
        if self.query.stage == "rejected":
            return rows
        about = self.rows.read([row["position"] for row in rows], ["text", "url", "language", "token_count"])
        return [row | about[row["position"]] for row in rows]


def _among(positions: list[int]) -> str:
    """A condition on positions, written out, so that row groups without one of them are passed over."""
    return f"position IN ({', '.join(str(int(position)) for position in positions)})"
