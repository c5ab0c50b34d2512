"""What one arm selects from: a release's index as arrays, and its vectors where they lie. Knows the record; no learner.

Shape suffixes: R rows of the index, N of them with every score of the arm, n rows of a batch.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from datamask_pipeline import schema
from datamask_pipeline.errors import InputError, IntegrityError, UnknownNameError
from datamask_pipeline.quality.combine import Normalisation, combine_scores
from datamask_pipeline.schema import SCORE_PREFIX
from datamask_pipeline.selection.sharded import ShardedVectors
from datamask_pipeline.spill import Room
from datamask_pipeline.stages.gather import index_scores
from datamask_pipeline.storage import Ref, Store, array_files


class Column(Protocol):
    """Values of documents, read some at a time."""

    def __getitem__(self, places: slice) -> NDArray[Any] | pa.Array: ...


@dataclasses.dataclass(frozen=True)
class Groups:
    """Which group each document is of.

    Attributes:
        names: The groups, each once.
        places_N: The place of each document's among them.
    """

    names: list[str]
    places_N: NDArray[np.int32]

    def at(self, documents: NDArray[np.int64]) -> list[str]:
        """The group of each of some documents, by their places."""
        return [self.names[place] for place in self.places_N[documents].tolist()]

    def among(self, documents: NDArray[np.int64]) -> set[str]:
        """The groups that some documents are of."""
        return {self.names[place] for place in np.unique(self.places_N[documents]).tolist()}


@dataclasses.dataclass(frozen=True)
class ReleaseRows:
    """The eligible documents that have every score of the arm, in canonical order.

    Attributes:
        scored_R: Which rows of the index these are.
        quality_N: The arm's scores combined, float64.
        token_counts_N: Tokens of each; NaN where the crawl states none.
        groups: Crawl or domain of each; ``None`` where no quota asks for it.
        vectors: Their vectors, (N, D), on disk; ``None`` where N is 0.
    """

    scored_R: NDArray[np.bool_]
    quality_N: NDArray[np.float64]
    token_counts_N: NDArray[np.float64]
    groups: Groups | None
    vectors: ShardedVectors | None

    def __len__(self) -> int:
        return len(self.quality_N)


def read_rows(
    store: Store,
    index: Ref,
    embeddings: Mapping[str, Ref],
    weights: Mapping[str, float],
    normalisation: Normalisation,
    group_by: str | None,
    room: Room | None = None,
) -> ReleaseRows:
    """Read the index: of a document a few numbers, neither its id nor its vector. They lie in files, see `spill`; while
    scores are ranked, memory holds three numbers a document.

    Args:
        store: The record.
        index: The release's index.
        embeddings: Embeddings of each crawl, those that the index was made from.
        weights: Weight of each scorer; every scorer of the index, equally, if empty.
        normalisation: How scores are made comparable.
        group_by: The column of groups, if groups are asked for.
        room: Where what is long lies; in the system's temporary folder by default.

    Raises:
        UnknownNameError: a scorer has no column in the index.
        IntegrityError: the index was made from other vectors.
    """
    made_from = store.manifest(index)["basis"]["inputs"]
    files: dict[tuple[str, str], tuple[int, Path]] = {}
    for crawl, ref in embeddings.items():
        if made_from.get(f"embeddings/{crawl}") != ref.content_digest:
            raise IntegrityError(
                f"the index of release {index.key!r} was made from other vectors of crawl {crawl!r}; "
                "run stage 'gather' again"
            )
        for shard, path in array_files(store, ref).items():
            files[crawl, shard] = (len(files), path)
    known = [name.removeprefix(SCORE_PREFIX) for name in index_scores(store, index).names]
    weights = dict(sorted(weights.items())) or dict.fromkeys(known, 1.0)
    for name in weights:
        if name not in known:
            raise UnknownNameError("quality scorer with stored scores", name, known)
    room = room or Room()
    new = functools.partial(room.array, index.rows)
    files_R, rows_R, scored_R = new(np.int32), new(np.int64), new(bool)
    numbers = {name: new(np.float64) for name in ("token_count", *(SCORE_PREFIX + name for name in weights))}
    groups_R, names = new(np.int32) if group_by else None, dict[str, int]()
    columns = ["crawl", "shard", "row", *numbers, *([group_by] if group_by else [])]
    first = 0
    for batch in store.iter_batches(index, list(dict.fromkeys(columns))):
        place = slice(first, first + batch.num_rows)
        files_R[place] = _file_numbers(batch, files)
        rows_R[place] = batch.column("row").to_numpy()
        for name, values_R in numbers.items():
            values_R[place] = batch.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)
        scored_R[place] = ~np.any([np.isnan(numbers[SCORE_PREFIX + name][place]) for name in weights], axis=0)
        if groups_R is not None:
            coded = batch.column(group_by).dictionary_encode()
            known_as = [names.setdefault(name, len(names)) for name in coded.dictionary.to_pylist()]
            groups_R[place] = np.array(known_as, np.int32)[coded.indices.to_numpy()]
        first += batch.num_rows
    if not scored_R.any():
        return ReleaseRows(scored_R, np.empty(0), np.empty(0), None, None)
    if not scored_R.all():
        scored_N = np.flatnonzero(scored_R)
        files_R, rows_R = room.taken(files_R, scored_N), room.taken(rows_R, scored_N)
        numbers = {name: room.taken(values_R, scored_N) for name, values_R in numbers.items()}
        groups_R = None if groups_R is None else room.taken(groups_R, scored_N)
    scores = {name: numbers[SCORE_PREFIX + name] for name in weights}
    quality_N = room.array(len(files_R), np.float64)
    quality_N[:] = combine_scores(scores, weights, normalisation=normalisation)
    return ReleaseRows(
        scored_R=scored_R,
        quality_N=quality_N,
        token_counts_N=numbers["token_count"],
        groups=None if groups_R is None else Groups([*names], groups_R),
        vectors=ShardedVectors([path for _, path in files.values()], files_R, rows_R),
    )


def require_token_counts(store: Store, index: Ref, rows: ReleaseRows) -> None:
    """Refuse documents without a token count above 0, for a budget in tokens.

    Raises:
        InputError: naming the first of them, and how many each crawl has.
    """
    missing_N = ~(rows.token_counts_N > 0)  # null is NaN
    if not missing_N.any():
        return
    missing_R = np.zeros(len(rows.scored_R), np.bool_)
    missing_R[np.flatnonzero(rows.scored_R)[missing_N]] = True
    found: Counter[str] = Counter()
    first = 0
    for batch in store.iter_batches(index, ["crawl"]):
        last = first + batch.num_rows
        found.update(batch.column("crawl").filter(pa.array(missing_R[first:last])).to_pylist())
        first = last
    document = _named(store, index, rows, int(np.argmax(missing_N)))
    crawls = ", ".join(f"{number} of crawl {crawl!r}" for crawl, number in found.items())
    raise InputError(
        f"{int(missing_N.sum())} of {len(rows)} documents have no token count above 0, which a budget in tokens needs: "
        f"{crawls} (the first: {document})",
        field="token_count",
        remedy="fill token_count in the source's files and run again, which embeds and scores anew the files that change; "
        "or withdraw the documents (`pool.takedown`); or give the budget as ratio or num_documents",
    )


@contextmanager
def naming_documents(store: Store, index: Ref, rows: ReleaseRows, block: NDArray[np.int64]) -> Iterator[None]:
    """What the engine says of a row of a block is said of the document by its id and crawl.

    Raises:
        InputError: as the engine does.
    """
    try:
        yield
    except InputError as error:
        if error.row is None or error.file is not None:
            raise
        raise InputError(
            f"{error.problem}: {_named(store, index, rows, int(block[error.row]))}",
            field=error.field,
            value=error.value,
            remedy=error.remedy,
        ) from error


def _named(store: Store, index: Ref, rows: ReleaseRows, place: int) -> str:
    """The document at a place of the rows, by its id and crawl."""
    row = int(np.flatnonzero(rows.scored_R)[place])
    for batch in store.iter_batches(index, ["crawl", "id"]):
        if row < batch.num_rows:
            (found,) = batch.slice(row, 1).to_pylist()
            return f"{found['id']!r} of crawl {found['crawl']!r}"
        row -= batch.num_rows
    raise IntegrityError(
        f"the index of release {index.key!r} has fewer rows than it says; run stage 'gather' again"
    )


def positions(store: Store, index: Ref, rows: ReleaseRows, room: Room) -> NDArray[np.int64]:
    """The place of each document in the release's order.

    Args:
        store: The record.
        index: The release's index.
        rows: What was read of it.
        room: Where what is long lies.
    """
    positions_R = room.array(index.rows, np.int64)
    first = 0
    for batch in store.iter_batches(index, ["position"]):
        positions_R[first : first + batch.num_rows] = batch.column("position").to_numpy()
        first += batch.num_rows
    return positions_R if rows.scored_R.all() else room.taken(positions_R, np.flatnonzero(rows.scored_R))


def with_index(
    store: Store, index: Ref, rows: ReleaseRows, columns: Mapping[str, Column]
) -> Iterator[pa.RecordBatch]:
    """The selection's rows: what the index says of a document, then what the arm decided, a batch at a time.

    Args:
        store: The record.
        index: The release's index.
        rows: What was read of it.
        columns: Of N values each, by name; a number that is not finite becomes null, with the reason beside it.
    """
    first = done = 0
    for batch in store.iter_batches(index, ["position", "crawl", "id"]):
        scored_n = rows.scored_R[first : first + batch.num_rows]
        kept = batch if scored_n.all() else batch.filter(pa.array(scored_n))
        first += batch.num_rows
        values = {name: _column(column_N[done : done + kept.num_rows]) for name, column_N in columns.items()}
        done += kept.num_rows
        arrays = [values[name] if name in values else kept.column(name) for name in schema.SELECTION.names]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema.SELECTION)


def _file_numbers(
    batch: pa.RecordBatch, files: Mapping[tuple[str, str], tuple[int, Path]]
) -> NDArray[np.int32]:
    """The number of the file that holds each row's vector; a batch is of one crawl and of few shards."""
    (crawl,) = pc.unique(batch.column("crawl")).to_pylist()
    encoded = batch.column("shard").dictionary_encode()
    numbers = np.array([files[crawl, shard][0] for shard in encoded.dictionary.to_pylist()], np.int32)
    of_rows: NDArray[np.int32] = numbers[encoded.indices.to_numpy()]
    return of_rows


def _column(values_n: NDArray[Any] | pa.Array) -> pa.Array:
    if isinstance(values_n, pa.Array):
        return values_n
    if values_n.dtype.kind != "f":
        return pa.array(values_n)
    return pa.array(values_n, pa.float64(), mask=~np.isfinite(values_n))
