"""The rows of a release's index, read side by side out of tables that stand in the documents' order. Knows no scorer's name.

Memory holds a few thousand rows of each table, however many there are.

Shape suffixes: n documents of a window, S scorers of the crawl.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.stages.windows import regrouped
from datamask_pipeline.storage import ROW_GROUP_ROWS, Ref, Store
from datamask_pipeline.storage.aligned import Aligned

#: Of the candidates, what the index is made of.
_TAKEN = ["position", "crawl", "id", "content_hash", "shard", "domain", "token_count", "eligible"]
_NEAR = ["near_copy_of", "num_near_copies"]


def scorers_of(store: Store, scores: Ref) -> list[str]:
    """The scorers that gave a crawl's documents a row, sorted."""
    found: set[str] = set()
    for batch in store.iter_batches(scores, ["scorer"]):
        found.update(pc.unique(batch.column(0)).to_pylist())
    return sorted(found)


def index_rows(
    store: Store,
    *,
    candidates: Ref,
    number: int,
    crawl: str,
    embeddings: Ref,
    scores: Ref,
    scorers: Sequence[str],
    copies: Ref | None,
    columns: pa.Schema,
    prefix: str,
) -> Iterator[pa.Table]:
    """What the index says of one crawl: its eligible documents that are no near-copy, so many at a time as a row group has.

    Args:
        store: The record.
        candidates: The release's candidates.
        number: The crawl's number among the release's.
        crawl: Its name.
        embeddings: Its embeddings.
        scores: Its scores, a row for each scorer of a document.
        scorers: Its scorers.
        copies: The release's near-copies, if they were sought.
        columns: The index's columns; null for scorers that this crawl has not.
        prefix: Before a scorer's name, in the columns.

    Raises:
        IntegrityError: vectors or scores are not those of the documents, row by row; told when all were looked at.
    """
    near = None if copies is None else Aligned(store, copies)
    vectors, scored = (
        _Rows(_vectors(store, embeddings)),
        _Rows(store.iter_batches(scores, ["id", "scorer", "score"])),
    )
    gaps = _Gaps(crawl)

    def windows() -> Iterator[pa.Table]:
        with store.part_file(candidates, store.part_names(candidates)[number]) as part:
            for batch in part.iter_batches(ROW_GROUP_ROWS, columns=_TAKEN):
                rows = pa.Table.from_batches([batch])
                beside, has_vector_n = _beside(rows, vectors.take(rows.num_rows))
                gaps.add("embedding", "embed", rows, has_vector_n)
                found = {name: rows[name] for name in _TAKEN} | {"row": beside}
                values, has_scores_n = _pivoted(rows, scored.take(rows.num_rows * len(scorers)), scorers)
                gaps.add("row of scores", "score", rows, has_scores_n)
                found |= {prefix + name: column for name, column in values.items()}
                kept = rows["eligible"]
                if near is not None:
                    counts, is_copy_n = _near(near, rows)
                    found["num_near_copies"] = counts
                    kept = pc.and_(kept, pa.array(~is_copy_n))
                arrays = [
                    found[name] if name in found else pa.nulls(rows.num_rows, columns.field(name).type)
                    for name in columns.names
                ]
                yield pa.Table.from_arrays(arrays, schema=columns).filter(kept)
        gaps.refuse()

    yield from regrouped(windows(), columns, ROW_GROUP_ROWS)


def _vectors(store: Store, embeddings: Ref) -> Iterator[pa.RecordBatch]:
    """Id and content hash of each vector, and its row in its part's array."""
    for name in store.part_names(embeddings):
        with store.part_file(embeddings, name) as part:
            first = 0
            for batch in part.iter_batches(ROW_GROUP_ROWS, columns=["id", "content_hash"]):
                rows_n = pa.array(np.arange(first, first + batch.num_rows))
                first += batch.num_rows
                yield pa.RecordBatch.from_arrays(
                    [batch.column("id"), batch.column("content_hash"), rows_n], ["id", "content_hash", "row"]
                )


class _Rows:
    """Rows of batches, taken so many at a time."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._held: list[pa.RecordBatch] = []

    def take(self, num_rows: int) -> pa.Table | None:
        """The next rows, fewer at the end; ``None`` after it."""
        taken: list[pa.RecordBatch] = []
        missing = num_rows
        while (
            missing and (batch := self._held.pop() if self._held else next(self._batches, None)) is not None
        ):
            taken.append(batch.slice(0, missing))
            if batch.num_rows > missing:
                self._held.append(batch.slice(missing))
            missing -= taken[-1].num_rows
        return pa.Table.from_batches(taken).combine_chunks() if taken else None


class _Gaps:
    """Documents of a crawl of which something does not stand in its place."""

    def __init__(self, crawl: str) -> None:
        self._crawl = crawl
        self._found: dict[tuple[str, str], tuple[int, str]] = {}

    def add(self, what: str, stage: str, rows: pa.Table, is_there_n: NDArray[np.bool_]) -> None:
        """Count those of some rows."""
        if not is_there_n.all():
            count, first = self._found.get((what, stage), (0, rows["id"][int(np.argmin(is_there_n))].as_py()))
            self._found[what, stage] = count + int((~is_there_n).sum()), first

    def refuse(self) -> None:
        """Say the first kind of gap that there is, vectors before scores."""
        for (what, stage), (count, first) in sorted(self._found.items()):
            raise IntegrityError(
                f"{count} documents of crawl {self._crawl!r} have no {what} in their place, the first {first!r}; "
                f"run stage {stage!r} of that crawl again"
            )


def _beside(rows: pa.Table, vectors: pa.Table | None) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Each document's row in its part's array, and whether it has one."""
    size = rows.num_rows
    found = 0 if vectors is None else vectors.num_rows
    has_vector_n = np.zeros(size, bool)
    if vectors is None:
        return pa.nulls(size, pa.int64()), has_vector_n
    same = (
        pc.equal(rows[name].slice(0, found), vectors[name]).fill_null(False)
        for name in ("id", "content_hash")
    )
    has_vector_n[:found] = pc.and_(*same).to_numpy()
    return pa.concat_arrays([vectors["row"].chunk(0), pa.nulls(size - found, pa.int64())]), has_vector_n


def _pivoted(
    rows: pa.Table, scored: pa.Table | None, scorers: Sequence[str]
) -> tuple[dict[str, pa.Array], NDArray[np.bool_]]:
    """A column of scores for each scorer, and whether a document has a row of its own of each."""
    size, num_scorers = rows.num_rows, len(scorers)
    has_scores_n = np.full(size, num_scorers == 0)
    if scored is None:
        return {name: pa.nulls(size, pa.float64()) for name in scorers}, has_scores_n
    documents_m = np.arange(scored.num_rows) // num_scorers
    is_own_m = pc.equal(rows["id"].take(pa.array(documents_m)), scored["id"]).fill_null(False).to_numpy()
    has_scores_n[: len(documents_m) // num_scorers] = True
    has_scores_n[documents_m[~is_own_m]] = False
    values = {}
    for name in scorers:
        rows_m = np.flatnonzero(pc.equal(scored["scorer"], name).fill_null(False).to_numpy())
        places_n = np.zeros(size, np.int64)
        places_n[documents_m[rows_m]] = rows_m
        is_there_n = np.bincount(documents_m[rows_m], minlength=size) == 1
        has_scores_n &= is_there_n
        values[name] = scored["score"].take(pa.array(places_n, mask=~is_there_n)).combine_chunks()
    return values, has_scores_n


def _near(near: Aligned, rows: pa.Table) -> tuple[pa.Array, NDArray[np.bool_]]:
    """The size of each document's group of near-copies, null where none were sought, and whether it is one of another."""
    positions_n = rows["position"].to_numpy()
    found, is_found_n = near.at(positions_n, _NEAR)
    places = pa.array(np.cumsum(is_found_n) - 1, mask=~is_found_n)
    is_copy = found["near_copy_of"].is_valid().combine_chunks().take(places).fill_null(False)
    return found["num_near_copies"].combine_chunks().take(places), is_copy.to_numpy(zero_copy_only=False)
