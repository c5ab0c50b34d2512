"""Why a document is chosen on one side alone, by pools, near-copies, indexes and masks. Knows their columns.

All of them stand in the order of their release, so they are read side by side, a window of documents at a time: memory is
that of a few windows, however many documents there are. Nothing is joined by id where two pools read the same version of a
crawl: a document's row in the crawl says where it stands in both.
"""

import contextlib
import functools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from datamask_pipeline import duck
from datamask_pipeline.arrays import are_null, flags_of, places_array, string_array, values_of
from datamask_pipeline.audit.selections import Selection
from datamask_pipeline.schema import SCORE_PREFIX
from datamask_pipeline.selection.reasons import BY_DRAW, BY_MARGINALS, BY_QUALITY, HELD, PASSED_OVER, Decision
from datamask_pipeline.stages.gather import index_scores
from datamask_pipeline.storage import Store
from datamask_pipeline.storage.aligned import Aligned
from datamask_pipeline.storage.ref import ref_of

if TYPE_CHECKING:
    import duckdb

Side = Literal["came", "went"]
SIDES: Final[tuple[Side, ...]] = ("came", "went")
#: Documents looked at together.
WINDOW_ROWS: Final = 1 << 17
#: What DuckDB may hold, where a crawl was ingested again, before it spills.
_MEMORY_LIMIT: Final = "1GB"
_FIGURES: Final = ("quality_marginal", "diversity_marginal", "threshold", "reason")


class Changed(NamedTuple):
    """What a window of documents tells.

    Attributes:
        side: Who is told of: those that came, or went.
        crawl: Their crawl.
        rows: Those that this side alone chose, in its order: ``id`` if asked for, ``domain``, ``tokens``, ``reason``.
        stayed: How many of the window both sides chose.
    """

    side: Side
    crawl: str
    rows: pa.Table
    stayed: int


def find_changed(
    store: Store,
    old: Selection,
    new: Selection,
    sides: Sequence[Side] = SIDES,
    *,
    are_others: bool,
    with_ids: bool = False,
) -> Iterator[Changed]:
    """Who is chosen on one side alone, and why; of one side in the order of its release.

    Args:
        store: The record.
        old: The older selection.
        new: The newer one.
        sides: Who is asked for.
        are_others: Whether the arm itself or its vectors have other settings.
        with_ids: Whether ids are asked for.
    """
    scores = _raw_scores(store, old, new)
    again = [crawl for crawl in old.crawls if _is_again(crawl, old, new)]
    before, after = (_Tables(store, each, with_texts=bool(again), with_ids=with_ids) for each in (old, new))
    of: dict[Side, tuple[_Tables, _Tables]] = {"went": (before, after), "came": (after, before)}
    crawls = dict.fromkeys(crawl for side in sides for crawl in of[side][0].crawls)
    with _matched(store, old, new, again) as matched:
        for crawl in crawls:
            for side, mine_n, other_n in _windows(crawl, of, sides, again, matched):
                mine, other = of[side]
                chosen_n, there_n = mine.chosen(mine_n), other.chosen(other_n)
                alone_n = np.flatnonzero(chosen_n & ~there_n)
                reasons = functools.partial(_reasons, mine, other, crawl, scores, are_others=are_others)
                rows = mine.told(mine_n[alone_n])
                rows = rows.append_column("reason", reasons(mine_n[alone_n], other_n[alone_n]))
                yield Changed(side, crawl, rows, int((chosen_n & there_n).sum()))


class _Tables:
    """The tables behind one side, by a document's position; -1 is no document."""

    def __init__(self, store: Store, selection: Selection, *, with_texts: bool, with_ids: bool) -> None:
        self._store, self._selection = store, selection
        self.crawls = selection.crawls
        self.rows = {
            crawl: int(part["rows"]) for crawl, part in zip(self.crawls, selection.pool["parts"], strict=True)
        }
        self.with_texts = with_texts
        self._told = [*["id"] * with_ids, "domain", "token_count"]
        self._mask, self._index = (Aligned(store, ref_of(each)) for each in (selection.mask, selection.index))
        self._pool = Aligned(store, ref_of(selection.pool), first=0)
        self._near = selection.copies and Aligned(store, ref_of(selection.copies))

    def chosen(self, positions_n: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each is chosen."""
        rows, is_found_n = _rows_at(self._mask, positions_n, ["selected"])
        return flags_of(_array(rows, "selected")) & is_found_n

    def told(self, positions_n: NDArray[np.int64]) -> pa.Table:
        """What is told of each: its length and domain, and its id if asked for."""
        rows, _ = _rows_at(self._pool, positions_n, self._told)
        names = ["tokens" if name == "token_count" else name for name in self._told]
        return rows.rename_columns(names)

    def masked(
        self, positions_n: NDArray[np.int64], columns: Sequence[str]
    ) -> tuple[pa.Table, NDArray[np.bool_]]:
        """What the mask says of each, and whether it says anything."""
        return _rows_at(self._mask, positions_n, columns)

    def pooled(self, positions_n: NDArray[np.int64], column: str) -> pa.Array:
        """What a column of the pool says of each."""
        return _array(_rows_at(self._pool, positions_n, [column])[0], column)

    def are_near(self, positions_n: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each is a near-copy of another document."""
        if not self._near:
            return np.zeros(len(positions_n), bool)
        rows, _ = _rows_at(self._near, positions_n, ["near_copy_of"])
        return ~are_null(_array(rows, "near_copy_of"))

    def scores(
        self, positions_n: NDArray[np.int64], name: str
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """A score of each, and whether it is null; all are where the index has none by that name."""
        if name not in self._index.schema.names:
            return np.zeros(len(positions_n)), np.ones(len(positions_n), bool)
        rows, _ = _rows_at(self._index, positions_n, [name])
        column = _array(rows, name)
        return values_of(column, np.float64), are_null(column)

    def is_at_the_cut(self, positions_n: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the quality of each is that of the last chosen by quality in its block."""
        rows, _ = _rows_at(self._mask, positions_n, ["quality", "threshold"])
        quality_n, threshold_n = _numbers(rows, "quality"), _numbers(rows, "threshold")
        cut_n = np.array([self._cuts.get(threshold, np.nan) for threshold in threshold_n.tolist()])
        return quality_n == cut_n

    @functools.cached_property
    def _cuts(self) -> dict[float, float]:
        """The cut of each block as a quality, by its threshold; under quotas, of the group whose cut is the lowest."""
        found: dict[float, float] = {}
        columns = ["selected", "reason", "quality", "threshold"]
        for batch in self._store.iter_batches(ref_of(self._selection.mask), columns, batch_rows=WINDOW_ROWS):
            chosen = batch.filter(pc.and_(batch["selected"], pc.equal(batch["reason"], BY_QUALITY.into)))
            rows = pa.Table.from_batches([chosen]).group_by("threshold").aggregate([("quality", "min")])
            for threshold, quality in zip(
                *(rows[name].to_pylist() for name in rows.column_names), strict=True
            ):
                found[threshold] = min(quality, found.get(threshold, quality))
        return found


def _reasons(
    mine: _Tables,
    other: _Tables,
    crawl: str,
    scores: Sequence[str],
    mine_n: NDArray[np.int64],
    other_n: NDArray[np.int64],
    *,
    are_others: bool,
) -> pa.Array:
    """The first reason that holds of each document, by what both sides say of it.

    Args:
        mine: The side that chose them.
        other: The other side.
        crawl: Their crawl.
        scores: The raw scores that may differ.
        mine_n: Their positions on the side that chose them.
        other_n: Their positions on the other; -1: not there.
        are_others: Whether the arm itself or its vectors have other settings.
    """
    if crawl not in other.crawls:
        return _words(["crawl"], np.zeros(len(mine_n), np.int64))
    exclusion = other.pooled(other_n, "exclusion")
    masked, is_masked_n = other.masked(other_n, [] if are_others else _FIGURES)
    found: dict[str, NDArray[np.bool_]] = {
        "documents": other_n < 0,
        "excluded": ~are_null(exclusion),
        "near_copy": other.are_near(other_n),
        "no_score": ~is_masked_n,
    }
    if are_others:
        found["configuration"] = np.ones(len(mine_n), bool)
    else:
        found |= dict(_by_what_changed(mine, other, masked, scores, mine_n, other_n))
    names = list(found)
    first_n = np.argmax(np.stack([*found.values(), np.ones(len(mine_n), bool)]), axis=0)
    told = _words([*names, "displaced"], first_n)
    return pc.if_else(_words_are(told, "excluded"), exclusion, told)


def _by_what_changed(
    mine: _Tables,
    other: _Tables,
    masked: pa.Table,
    scores: Sequence[str],
    mine_n: NDArray[np.int64],
    other_n: NDArray[np.int64],
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Reasons of documents that could have been chosen on both sides, under the same settings."""
    is_text_n = is_score_n = np.zeros(len(mine_n), bool)
    if mine.with_texts:
        hashes = (mine.pooled(mine_n, "content_hash"), other.pooled(other_n, "content_hash"))
        is_text_n = flags_of(pc.not_equal(*hashes))
    for name in scores:
        (own_n, is_null_n), (their_n, are_null_n) = mine.scores(mine_n, name), other.scores(other_n, name)
        is_equal_n = (own_n == their_n) | (np.isnan(own_n) & np.isnan(their_n))
        is_score_n = is_score_n | (is_null_n != are_null_n) | ~(is_null_n | are_null_n | is_equal_n)
    own, _ = mine.masked(mine_n, _FIGURES)
    reason = _array(masked, "reason")
    quality_n, diversity_n, threshold_n = (
        _numbers(masked, name) - _numbers(own, name)
        for name in ("quality_marginal", "diversity_marginal", "threshold")
    )
    above_n = quality_n - np.where(_is_one_of(reason, BY_MARGINALS), threshold_n, 0)
    is_draw_n = _is_one_of(reason, BY_DRAW)
    by_lot_n = np.flatnonzero(flags_of(_words_are(reason, BY_QUALITY.out_all_the_same)))
    if len(by_lot_n):
        is_draw_n[by_lot_n] |= mine.is_at_the_cut(mine_n[by_lot_n]) & other.is_at_the_cut(other_n[by_lot_n])
    yield "text", is_text_n
    yield "score", is_score_n
    is_held_n = flags_of(_words_are(_array(own, "reason"), HELD))
    yield "earlier_release", is_held_n | flags_of(_words_are(reason, PASSED_OVER))
    yield "draw", is_draw_n
    yield "diversity", ~_is_one_of(reason, BY_QUALITY) & (diversity_n < above_n)
    yield "quality", _is_one_of(reason, BY_QUALITY) | (diversity_n >= above_n)


def _windows(
    crawl: str,
    of: Mapping[Side, tuple[_Tables, _Tables]],
    sides: Sequence[Side],
    again: Sequence[str],
    matched: "duckdb.DuckDBPyConnection | None",
) -> Iterator[tuple[Side, NDArray[np.int64], NDArray[np.int64]]]:
    """Positions of a crawl's documents on the side that is told of, and on the other, a window at a time."""
    # Both sides of a window one after the other, so that what was read for one serves the other.
    for first in range(0, max(tables.rows.get(crawl, 0) for tables in of["went"]), WINDOW_ROWS):
        for side in sides:
            mine, other = of[side]
            rows_n = np.arange(first, min(first + WINDOW_ROWS, mine.rows.get(crawl, 0)))
            if len(rows_n) == 0:
                continue
            mine_n = mine.crawls[crawl] + rows_n
            if crawl not in other.crawls:
                other_n = np.full(len(rows_n), -1)
            elif crawl in again and matched is not None:
                other_n = _match(matched, side, mine_n)
            else:
                other_n = other.crawls[crawl] + rows_n
            yield side, mine_n, other_n


@contextlib.contextmanager
def _matched(
    store: Store, old: Selection, new: Selection, again: Sequence[str]
) -> "Iterator[duckdb.DuckDBPyConnection | None]":
    """A database with positions ``went`` and ``came`` of the documents of crawls that were ingested again, matched by id.

    An id that a crawl repeats is matched in order. ``None`` where no crawl was.
    """
    if not again:
        yield None
        return
    with (
        tempfile.TemporaryDirectory() as scratch,
        duck.connect(store, Path(scratch), memory_limit=_MEMORY_LIMIT) as connection,
    ):
        connection.execute("CREATE TEMP TABLE matched (went BIGINT, came BIGINT)")
        for crawl in again:
            sides = [
                "(SELECT position, id, row_number() OVER (PARTITION BY id ORDER BY position) AS number FROM "
                f"{duck.parts_sql(store, [ref_of(each.pool)], 'position, id, crawl')} WHERE crawl = {duck.literal(crawl)})"
                for each in (old, new)
            ]
            connection.execute(
                f"INSERT INTO matched SELECT a.position, b.position FROM {sides[0]} AS a JOIN {sides[1]} AS b "
                "USING (id, number)"
            )
        # One table in the order of each side, of which a window touches few pages.
        for side in SIDES:
            connection.execute(
                f"CREATE TEMP TABLE by_{side} AS SELECT went, came FROM matched ORDER BY {side}"
            )
        yield connection


def _match(
    matched: "duckdb.DuckDBPyConnection", side: Side, positions_n: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The position of each document on the other side; -1 where it is not there."""
    other = "came" if side == "went" else "went"
    found = matched.execute(
        f"SELECT {side}, {other} FROM by_{side} WHERE {side} BETWEEN ? AND ?",
        [int(positions_n[0]), int(positions_n[-1])],
    ).fetchnumpy()
    other_n = np.full(len(positions_n), -1)
    other_n[found[side] - positions_n[0]] = found[other]
    return other_n


def _rows_at(
    table: Aligned, positions_n: NDArray[np.int64], columns: Sequence[str]
) -> tuple[pa.Table, NDArray[np.bool_]]:
    """A table's rows at positions in any order, null where it has none, and whether it has each."""
    if len(positions_n) == 0 or (positions_n[0] >= 0 and (np.diff(positions_n) > 0).all()):
        rows, is_found_n = table.at(positions_n, columns)
        if is_found_n.all():
            return rows, is_found_n
        places_n = np.maximum(np.cumsum(is_found_n) - 1, 0)
        return rows.take(places_array(places_n, is_found_n)), is_found_n
    wanted_n, which_n = np.unique(positions_n, return_inverse=True)
    rows, is_found_n = _rows_at(table, wanted_n[wanted_n >= 0], columns)
    which_n = which_n - (wanted_n < 0).sum()
    is_known_n = which_n >= 0
    which_n = np.maximum(which_n, 0)
    is_found_n = is_known_n & np.append(is_found_n, False)[which_n]
    return rows.take(places_array(which_n, is_found_n)), is_found_n


def _array(rows: pa.Table, name: str) -> pa.Array:
    """A column in one piece."""
    column = rows[name]
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays([pa.nulls(0, column.type), *column.chunks])
    )


def _numbers(rows: pa.Table, name: str) -> NDArray[np.float64]:
    """A column of numbers; what is null is no number."""
    column = _array(rows, name)
    return np.where(are_null(column), np.nan, values_of(column, np.float64))


def _is_one_of(reason: pa.Array, decision: Decision) -> NDArray[np.bool_]:
    """Whether each reason is one of a decision's."""
    words = [decision.out, decision.into, decision.out_all_the_same, decision.in_all_the_same]
    return flags_of(_words_are(reason, *filter(None, words)))


def _words_are(array: pa.Array, *words: str) -> pa.BooleanArray:
    return pc.is_in(array, value_set=string_array(words))


def _words(words: Sequence[str], which_n: NDArray[np.int64]) -> pa.Array:
    return string_array(words).take(places_array(which_n, np.ones(len(which_n), bool)))


def _is_again(crawl: str, old: Selection, new: Selection) -> bool:
    """Whether a crawl was ingested again between the two."""
    return crawl in new.crawls and old.digest("documents", crawl) != new.digest("documents", crawl)


def _raw_scores(store: Store, mine: Selection, other: Selection) -> list[str]:
    """The columns of scores that the arm reads; none where all crawls of both have the same scores."""
    common = [crawl for crawl in mine.crawls if crawl in other.crawls]
    if all(mine.digest("scores", crawl) == other.digest("scores", crawl) for crawl in common):
        return []
    weights = mine.mask["basis"]["config"]["scorers"]
    known = {name for each in (mine, other) for name in index_scores(store, ref_of(each.index)).names}
    return sorted(({SCORE_PREFIX + name for name in weights} or known) & known)
