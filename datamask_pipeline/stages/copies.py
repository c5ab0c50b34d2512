"""Copies: which eligible documents of a release are near-copies of an earlier one, by their embeddings.

Off unless `copies.threshold` is set: then the stage is no part of the flow. Documents are taken in the release's
canonical order, so the order of its crawls decides who represents whom. Knows vectors and their places; no text.
What is withdrawn or held out for validation is left out before: its near-copies stay unless `pool.near_duplicates` or
`pool.takedown` names them.

The index is kept beside the result. A release that goes on from another one takes in the added crawls alone: its index
begins as the other's, whose vectors are read only where a new one is compared with them. Where the crawls before have the
same eligible documents, what was found of them is carried over: a group's size is then told as it was when its document's
crawl came in.
"""

import dataclasses
import itertools
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from datamask_pipeline import schema
from datamask_pipeline.disk import save_array
from datamask_pipeline.errors import ConfigurationError, IntegrityError
from datamask_pipeline.hardware import give_free_pages_back
from datamask_pipeline.near_copies import NearCopyIndex
from datamask_pipeline.near_copies.index import LEAST_THRESHOLD, MOST_THRESHOLD
from datamask_pipeline.near_copies.recall import FEW
from datamask_pipeline.selection.sharded import ShardedVectors
from datamask_pipeline.settings import Settings
from datamask_pipeline.spill import Room
from datamask_pipeline.stages import windows
from datamask_pipeline.stages.going_on import goes_on
from datamask_pipeline.storage import ROW_GROUP_ROWS, Ref, Store, array_files, link_or_copy, new_map

STAGE: Final = "copies"
VERSION: Final = "5"
#: Beside the index: the rows of the candidates that it holds, in its order.
ROWS_FILE: Final = "rows.npy"
_NAMED: Final = ["crawl", "id"]


class CopiesConfig(Settings):
    """Whether near-copies are collapsed, and what counts as one."""

    threshold: float | None = pydantic.Field(
        None,
        ge=LEAST_THRESHOLD,
        le=MOST_THRESHOLD,
        description="Collapse documents whose embeddings have at least this cosine to an earlier one's, e.g. 0.98; null "
        "collapses none. Near-duplicates by their words are `pool.near_duplicates`.",
    )


def is_off(config: CopiesConfig) -> bool:
    """Whether the flow goes without this stage."""
    return config.threshold is None


def run(
    config: CopiesConfig,
    *,
    store: Store,
    release: str,
    candidates: Ref,
    embeddings: Mapping[str, Ref],
    held: Ref | None = None,
) -> Ref:
    """Find the near-copies of one release.

    Args:
        config: The threshold.
        store: The record.
        release: The release's name.
        candidates: The release's candidates: one part a crawl, every document of it in order.
        embeddings: Embeddings of each crawl, in the release's order.
        held: The near-copies of the release that this one goes on from, if it does and they were sought.

    Returns:
        One row per eligible document in canonical order, one part per crawl: what it is a near-copy of, if it is one.

    Raises:
        ConfigurationError: no threshold is set.
        InputError: a vector is not of unit norm.
        IntegrityError: a crawl has another number of vectors than of documents.
    """
    if config.threshold is None:
        raise ConfigurationError("stage 'copies' is off; set copies.threshold, e.g. to 0.98")
    inputs: dict[str, Ref | str] = {"candidates": candidates}
    inputs |= {f"embeddings/{crawl}": ref for crawl, ref in embeddings.items()}
    if held is not None:
        inputs["held"] = held
    settings = config.result_config() | {"crawls": list(embeddings)}
    builder = store.begin(STAGE, release, version=VERSION, config=settings, inputs=inputs)
    if (done := builder.finished()) is not None:
        return done
    folder, begun = builder.scratch() / "index", None
    if held is not None:
        begun = _begun(store, held, config, embeddings, builder.scratch(), folder)
    room = Room(builder.scratch())
    rows_N, eligible_N = _rows(store, candidates, embeddings, begun, room)
    vectors = _vectors(store, embeddings, rows_N, room)
    index = NearCopyIndex.of(folder, vectors, threshold=config.threshold)
    save_array(folder / ROWS_FILE, rows_N)
    found = _found(index, rows_N, eligible_N, builder.scratch())
    give_free_pages_back()
    by_parts = ("candidates",)
    stands = begun is not None and goes_on(
        store, held, version=VERSION, settings=settings, inputs=inputs, by_parts=by_parts
    )
    before = held if stands else None
    parts = [] if before is None else builder.carry_parts(before)
    standing = _standing(store, candidates, found)
    crawls = store.manifest(candidates)["parts"]
    firsts = itertools.accumulate((part["rows"] for part in crawls), initial=0)
    for number, (crawl, first) in enumerate(zip(crawls, firsts, strict=False)):
        if number >= len(parts):
            told_of = _rows_of_crawl(store, candidates, crawl["name"], first, found, standing)
            parts.append(builder.write_part(f"{number:05d}", told_of, schema.NEAR_COPIES))
    rows = int(eligible_N.sum())
    kept = rows - found.num_copies
    builder.write_folder(
        "index", folder, carried=None if begun is None else held, unchanged=_segments(store, held)
    )
    metadata = {
        "crawls": list(embeddings),
        "threshold": config.threshold,
        "expected_recall": index.signatures.expected_recall,
        "largest_group": int(found.sizes_R.max()),
    }
    if held is not None:
        metadata["held"] = 0 if begun is None else len(begun[0])
    return builder.commit(
        parts,
        counts={"rows_in": rows, "kept": kept, "dropped_near_copy": rows - kept},
        metadata=metadata,
        carried=before,
    )


def told(manifest: Mapping[str, Any]) -> Iterator[str]:
    """How many near-copies there are."""
    counts, found = manifest["counts"], manifest["metadata"]
    yield (
        f"{counts['dropped_near_copy']} of {counts['rows_in']} eligible documents are near-copies of another "
        f"(cosine from {found['threshold']}; the largest group has {found['largest_group']})"
    )
    if found["expected_recall"] < FEW:
        yield (
            f"of pairs at that cosine {found['expected_recall']:.0%} are expected to be found, and more of nearer ones; set "
            "copies.threshold higher to find nearly all that are meant"
        )


def _begun(
    store: Store,
    held: Ref,
    config: CopiesConfig,
    embeddings: Mapping[str, Ref],
    scratch: Path,
    folder: Path,
) -> tuple[NDArray[np.int64], int] | None:
    """The held index as the beginning of this one: its rows and the number of its crawls; ``None`` where it cannot be.

    It can where its crawls come first here, with the same vectors, the threshold is the same, and this version made it.
    """
    made = store.manifest(held)
    crawls = made["basis"]["config"]["crawls"]
    digests = {f"embeddings/{crawl}": ref.content_digest for crawl, ref in embeddings.items()}
    there = any(file["name"] == f"index/{ROWS_FILE}" for file in made["files"])
    same = all(
        digests.get(name) == digest
        for name, digest in made["basis"]["inputs"].items()
        if name.startswith("embeddings/")
    )
    if not there or not same or crawls != list(embeddings)[: len(crawls)]:
        return None
    if made["metadata"]["threshold"] != config.threshold or made["basis"]["version"] != VERSION:
        return None
    kept = store.local_copy(held, "index", scratch / "held")
    if not folder.exists():
        private = folder.with_name("index.tmp")
        shutil.rmtree(private, ignore_errors=True)
        shutil.copytree(kept, private, copy_function=_taken_over)
        private.rename(folder)
    return np.load(kept / ROWS_FILE, mmap_mode="r"), len(crawls)


def _taken_over(source: str, target: str) -> str:
    """Of the held index what is never written again is linked; the rest this one writes anew, and needs its own."""
    return link_or_copy(source, target) if _is_of_segment(source) else str(shutil.copyfile(source, target))


def _is_of_segment(name: str) -> bool:
    return Path(name).match("index/*/*.npy")


def _segments(store: Store, held: Ref | None) -> set[str]:
    """The files of the held index's segments."""
    names = [] if held is None else [str(file["name"]) for file in store.manifest(held)["files"]]
    return set(filter(_is_of_segment, names))


def _rows(
    store: Store,
    candidates: Ref,
    embeddings: Mapping[str, Ref],
    begun: tuple[NDArray[np.int64], int] | None,
    room: Room,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The rows of the candidates that the index takes in, in its order, and which of all are eligible.

    Those that it holds come first, as they are in it, whether they are eligible still or not; then what is eligible of the
    crawls after theirs.
    """
    eligible, first, starts = [], 0, []
    for name, (crawl, ref) in zip(store.part_names(candidates), embeddings.items(), strict=True):
        with store.part_file(candidates, name) as part:
            table = part.read(["eligible"])
        if table.num_rows != ref.rows:
            raise IntegrityError(
                f"crawl {crawl!r} has {ref.rows} vectors and {table.num_rows} documents; run stage 'embed' of it again"
            )
        starts.append(first)
        first += table.num_rows
        eligible.append(table.column("eligible").to_numpy())
    eligible_R = np.concatenate(eligible)
    before_n, num_crawls = (np.empty(0, np.int64), 0) if begun is None else begun
    begin = [*starts, first][num_crawls]
    rows_N = room.array(len(before_n) + int(eligible_R[begin:].sum()), np.int64)
    rows_N[: (filled := len(before_n))] = before_n
    for start in range(begin, first, windows.ROWS):
        rows_n = start + np.flatnonzero(eligible_R[start : start + windows.ROWS])
        rows_N[filled : filled + len(rows_n)] = rows_n
        filled += len(rows_n)
    return rows_N, eligible_R


def _vectors(
    store: Store, embeddings: Mapping[str, Ref], rows_N: NDArray[np.int64], room: Room
) -> ShardedVectors:
    """The vectors of rows over all crawls, where they lie."""
    paths: list[Path] = []
    sizes: list[int] = []
    for ref in embeddings.values():
        paths += array_files(store, ref).values()
        sizes += [int(part["rows"]) for part in store.manifest(ref)["parts"]]
    ends_F: NDArray[np.int64] = np.cumsum(sizes, dtype=np.int64)
    files_N, places_N = room.array(len(rows_N), np.int32), room.array(len(rows_N), np.int64)
    for start in range(0, len(rows_N), windows.ROWS):
        here = slice(start, start + windows.ROWS)
        files_N[here] = np.searchsorted(ends_F, rows_N[here], side="right")
        places_N[here] = rows_N[here] - (ends_F - np.array(sizes))[files_N[here]]
    return ShardedVectors(paths, files_N, places_N)


@dataclasses.dataclass(frozen=True)
class _Found:
    """What stands for every document of a release.

    Attributes:
        eligible_R: Which of them are eligible.
        standing_R: Position of what stands for each, on disk; its own where it stands for itself.
        cosines_R: Cosine to it, on disk.
        sizes_R: Eligible documents in the group of each that stands for itself, on disk; 0 of all others.
        num_copies: Eligible documents that do not stand for themselves.
    """

    eligible_R: NDArray[np.bool_]
    standing_R: NDArray[np.int64]
    cosines_R: NDArray[np.float32]
    sizes_R: NDArray[np.int32]
    num_copies: int


def _found(
    index: NearCopyIndex, rows_N: NDArray[np.int64], eligible_R: NDArray[np.bool_], scratch: Path
) -> _Found:
    """What stands for each; what the index holds and is eligible no more stands for nothing; what was not eligible then
    stands for itself.
    """
    standing_R = new_map(scratch / "standing", np.int64, eligible_R.shape)
    cosines_R = new_map(scratch / "cosines", np.float32, eligible_R.shape)
    sizes_R = new_map(scratch / "sizes", np.int32, eligible_R.shape)
    starts = range(0, len(eligible_R), windows.ROWS)
    for start in starts:
        standing_R[start : start + windows.ROWS] = np.arange(
            start, min(start + windows.ROWS, len(eligible_R))
        )
        cosines_R[start : start + windows.ROWS] = 1.0
    for block in index.representatives():
        rows_q = rows_N[block.first_row : block.first_row + len(block.rows_Q)]
        standing_R[rows_q], cosines_R[rows_q] = rows_N[block.rows_Q], block.cosines_Q
    num_copies = 0
    for start in starts:
        here = slice(start, start + windows.ROWS)
        lost_r = ~eligible_R[standing_R[here]]
        standing_R[here][lost_r], cosines_R[here][lost_r] = start + np.flatnonzero(lost_r), 1.0
        standing_n = standing_R[here][eligible_R[here]]
        np.add.at(sizes_R, standing_n, 1)
        num_copies += int((standing_n != start + np.flatnonzero(eligible_R[here])).sum())
    return _Found(eligible_R, standing_R, cosines_R, sizes_R, num_copies)


def _standing(store: Store, candidates: Ref, found: _Found) -> pa.Table:
    """Row, crawl and id of the documents that near-copies are represented by, ascending."""
    none = pa.schema([*(schema.CANDIDATES.field(name) for name in _NAMED), ("row", pa.int64())]).empty_table()
    several_n = np.flatnonzero(found.sizes_R > 1)
    return pa.concat_tables([none, *windows.rows_at(store, [candidates], _NAMED, several_n)])


def _rows_of_crawl(
    store: Store, candidates: Ref, name: str, first: int, found: _Found, standing: pa.Table
) -> Iterator[pa.Table]:
    """What is told of each eligible document of one crawl, whose first row is given, in row groups."""
    rows_n = standing.column("row").to_numpy()

    def told_of() -> Iterator[pa.Table]:
        start = first
        with store.part_file(candidates, name) as part:
            for batch in part.iter_batches(windows.ROWS, columns=["position", *_NAMED]):
                eligible_n = found.eligible_R[start : start + batch.num_rows]
                positions_n = start + np.flatnonzero(eligible_n)
                start += batch.num_rows
                standing_n = found.standing_R[positions_n]
                itself_n = standing_n == positions_n
                others = standing.take(pa.array(np.searchsorted(rows_n, standing_n), mask=itself_n))
                columns = {
                    "near_copy_of_crawl": others.column("crawl"),
                    "near_copy_of": others.column("id"),
                    "cosine": pa.array(found.cosines_R[positions_n], mask=itself_n),
                    "num_near_copies": pa.array(found.sizes_R[standing_n]),
                }
                table = pa.Table.from_batches([batch.filter(pa.array(eligible_n))])
                for column, values in columns.items():
                    table = table.append_column(column, values)
                yield table.cast(schema.NEAR_COPIES)

    return windows.regrouped(told_of(), schema.NEAR_COPIES, ROW_GROUP_ROWS)
