"""Indexes of a table: sorted files beside the parts that lead from an id or a content hash to its rows, and count domains.

Knows the columns that name documents and texts; knows no stage. A file holds pairs of unsigned 64-bit numbers,
little-endian: XXH3 of the id's UTF-8, and the row in the artefact; sorted by both, without null ids. As the hashes are
spread evenly, one read where the id should stand finds it, on disk as in an object store. Of domains, each stands once: the
first 64 bits of its SHA-256, and how many rows have a URL there or below it.
"""

import dataclasses
import hashlib
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from datamask_pipeline import domains
from datamask_pipeline.arrays import are_null
from datamask_pipeline.storage.maps import new_map
from datamask_pipeline.storage.pieces import (
    DIGEST_BYTES,
    PIECES_FILE,
    CheckedFile,
    digests_of,
    num_pieces,
    split,
)
from datamask_pipeline.storage.ref import Ref
from datamask_pipeline.storage.store import Store

ID: Final = "id"
CONTENT: Final = "content_hash"
URL: Final = "url"
#: Columns that name another document; a row that names itself stands in no index by these.
_OTHERS: Final = ("representative_id", "near_copy_of")
#: Columns, and the file beside the parts that is the index by each; no part's file ends so.
INDEX_FILES: Final = {name: f"rows_by_{name}.u64" for name in (ID, *_OTHERS, CONTENT)} | {
    URL: "documents_by_domain.u64"
}

_hash = xxhash.xxh3_64_intdigest
_PAIR: Final = 16
#: Pairs sorted at a time.
_BUCKET_ROWS: Final = 1 << 18
#: Half of the first read spans so many standard deviations of where an evenly spread hash stands, and some pairs more.
_DEVIATIONS, _MARGIN = 6, 16


def indexed_columns(schema: pa.Schema) -> list[str]:
    """The columns by which every table gets an index; none where it has no ids."""
    named = [
        name
        for name in (ID, *_OTHERS)
        if name in schema.names and pa.types.is_string(schema.field(name).type)
    ]
    return named if ID in named else []


def key_of(column: str, value: str) -> int:
    """The number under which a value stands in the index by a column; of URLs it is a domain."""
    if column == URL:
        # Nobody can choose a domain so that it stands under the number of another.
        return int.from_bytes(hashlib.sha256(value.encode(errors="surrogatepass")).digest()[:8], "little")
    return _hash(value.encode(errors="surrogatepass"))


@dataclasses.dataclass(frozen=True)
class Begun:
    """The indexes of an artefact whose parts are the first ones of another.

    Attributes:
        folder: Where it lies, as the store's file system spells it.
        num_parts: Its parts.
        rows: Rows over all of them.
        digests: Those of the pieces of its parts.
    """

    folder: str
    num_parts: int
    rows: int
    digests: bytes

    @classmethod
    def of(cls, store: Store, ref: Ref, columns: Sequence[str]) -> Self | None:
        """Those of an artefact; ``None`` where it has not all of them, as one of an earlier version."""
        manifest = store.manifest(ref)
        there = {file["name"] for file in manifest.get("files", ())}
        if URL in columns or not there >= {PIECES_FILE, *(INDEX_FILES[column] for column in columns)}:
            return None
        digests = store.fs.cat_file(store.file_path(ref, PIECES_FILE))
        num_pieces_of_parts = sum(num_pieces(part["bytes"]) for part in manifest["parts"])
        return cls(
            folder=f"{store.root}/{ref.location}",
            num_parts=len(manifest["parts"]),
            rows=ref.rows,
            digests=digests[: num_pieces_of_parts * DIGEST_BYTES],
        )


def sizes_of(manifest: Mapping[str, Any]) -> dict[str, int]:
    """The files with digests of their pieces, in their order, and the bytes of each."""
    sizes = {f"{part['name']}.parquet": int(part["bytes"]) for part in manifest["parts"]}
    stated = {file["name"]: int(file["bytes"]) for file in manifest.get("files", ())}
    return sizes | {name: stated[name] for name in INDEX_FILES.values() if name in stated}


@dataclasses.dataclass(frozen=True)
class StatedIndex:
    """An index as its artefact's manifest states it.

    Attributes:
        path: Where it lies in the record.
        record: ``name``, ``bytes`` and ``sha256``.
        digests: Those of its pieces.
    """

    path: str
    record: dict[str, Any]
    digests: bytes

    def is_whole(self, store: Store) -> bool:
        """Whether it holds what was written to it."""
        path = f"{store.root}/{self.path}"
        if not store.fs.exists(path):
            return False
        with store.fs.open(path, "rb") as stream:
            return digests_of(stream) == self.digests


def stated_indexes(store: Store, ref: Ref) -> dict[str, StatedIndex]:
    """An artefact's indexes by column, none where an earlier version wrote it."""
    manifest = store.manifest(ref)
    stated = {file["name"]: file for file in manifest.get("files", ())}
    if PIECES_FILE not in stated:
        return {}
    digests = split(store.fs.cat_file(store.file_path(ref, PIECES_FILE)), sizes_of(manifest))
    return {
        column: StatedIndex(f"{ref.location}/{name}", stated[name], digests[name])
        for column, name in INDEX_FILES.items()
        if name in stated
    }


def write_index(
    store: Store, paths: Iterable[str], column: str, target: Path, scratch: Path, begun: Begun | None = None
) -> dict[str, str | int]:
    """Write an index; memory holds a bounded number of pairs, however many there are.

    Args:
        store: The record.
        paths: The artefact's parts, in canonical order; those after the ones that are indexed already.
        column: The column by which it is an index.
        target: The file.
        scratch: A folder for what lies between.
        begun: What is indexed already.

    Returns:
        ``bytes`` and ``sha256`` of the file.
    """
    unsorted = scratch / f"{target.name}.unsorted"
    with unsorted.open("wb") as stream:
        if begun is not None:
            with store.fs.open(f"{begun.folder}/{INDEX_FILES[column]}", "rb") as indexed:
                shutil.copyfileobj(indexed, stream)
        values, first = _values(store, paths, column), 0 if begun is None else begun.rows
        for pairs_n2 in _domain_pairs(values) if column == URL else pairs_of(values, first):
            stream.write(pairs_n2.tobytes())
    hashed, num_bytes = hashlib.sha256(), 0
    with target.open("wb") as stream:
        for pairs_n2 in sorted_pairs(unsorted):
            data = (_summed(pairs_n2) if column == URL else pairs_n2).tobytes()
            stream.write(data)
            hashed.update(data)
            num_bytes += len(data)
    unsorted.unlink()
    return {"bytes": num_bytes, "sha256": hashed.hexdigest()}


def rows_of_equals(store: Store, paths: Iterable[str], column: str, scratch: Path) -> NDArray[np.int64]:
    """Every row whose value stands in another row too, and by rare chance further ones, ascending.

    Args:
        store: The record.
        paths: Parts in canonical order.
        column: The column of values, not `URL`.
        scratch: A folder for what lies between.
    """
    unsorted = scratch / f"{column}.unsorted"
    with unsorted.open("wb") as stream:
        for pairs_n2 in pairs_of(_values(store, paths, column), 0):
            stream.write(pairs_n2.tobytes())
    return rows_of_equal_keys(unsorted)


def rows_of_equal_keys(unsorted: Path) -> NDArray[np.int64]:
    """Every row whose key another row has too, ascending.

    Args:
        unsorted: A file of pairs as an index has them, evenly spread keys, in any order; it is removed.
    """
    found = [np.empty(0, np.uint64)]
    for pairs_n2 in sorted_pairs(unsorted):
        is_next_n = np.diff(pairs_n2[:, 0], prepend=~pairs_n2[:1, 0]) == 0
        found.append(pairs_n2[is_next_n | np.append(is_next_n[1:], False), 1])
    unsorted.unlink()
    return np.sort(np.concatenate(found)).astype(np.int64)


def pairs_of(ids: Iterable[pa.Array], first: int) -> Iterator[NDArray[np.uint64]]:
    """Of each batch, its strings' hashes and their rows, the first as given; null is left out."""
    for column in ids:
        known = column.drop_null()
        pairs_n2 = np.empty((len(known), 2), "<u8")
        names = known.cast(pa.binary()).to_pylist()
        pairs_n2[:, 0] = np.fromiter(map(_hash, names), np.uint64, len(names))
        rows_n = np.flatnonzero(~are_null(column))
        pairs_n2[:, 1] = first + rows_n
        first += len(column)
        yield pairs_n2


def sorted_pairs(file: Path) -> Iterator[NDArray[np.uint64]]:
    """The pairs of a file in order of hash and row, by ranges of hashes of about the same number of pairs.

    They are dealt out to the ranges on disk first, so that the work grows as their number does.
    """
    if file.stat().st_size == 0:
        return
    pairs_N2 = np.memmap(file, "<u8", mode="r").reshape(-1, 2)
    num_buckets = -(-len(pairs_N2) // _BUCKET_ROWS)
    if num_buckets == 1:
        yield _in_order(pairs_N2)
        return
    edges = np.array([-(-(number << 64) // num_buckets) for number in range(1, num_buckets)], "<u8")
    starts = range(0, len(pairs_N2), _BUCKET_ROWS)
    counts = np.zeros(num_buckets, np.int64)
    for start in starts:
        hashes_n = pairs_N2[start : start + _BUCKET_ROWS, 0]
        counts += np.bincount(np.searchsorted(edges, hashes_n, "right"), minlength=num_buckets)
    ends = np.cumsum(counts)
    dealt = file.with_name(f"{file.name}.dealt")
    dealt_N2 = new_map(dealt, "<u8", pairs_N2.shape)
    places = ends - counts
    for start in starts:
        window_n2 = pairs_N2[start : start + _BUCKET_ROWS]
        buckets_n = np.searchsorted(edges, window_n2[:, 0], "right")
        order_n = np.argsort(buckets_n, kind="stable")
        for bucket, found_n in enumerate(
            np.split(order_n, np.cumsum(np.bincount(buckets_n, minlength=num_buckets))[:-1])
        ):
            dealt_N2[places[bucket] : places[bucket] + len(found_n)] = window_n2[found_n]
            places[bucket] += len(found_n)
    for start, stop in zip((ends - counts).tolist(), ends.tolist(), strict=True):
        yield _in_order(dealt_N2[start:stop])
    dealt.unlink()


def find(stream: CheckedFile, num_bytes: int, wanted: int) -> list[int]:
    """What stands under a number: rows of the value with this key, and by rare chance of others; or a domain's count.

    Args:
        stream: The index, opened.
        num_bytes: Its length.
        wanted: ``key_of`` the value.

    Returns:
        Rows of the artefact, counted from 0, ascending; of a domain one count, or none.
    """
    count = num_bytes // _PAIR
    middle = wanted * count >> 64
    half = _DEVIATIONS * int(count**0.5) // 2 + _MARGIN
    while True:
        start, stop = max(0, middle - half), min(count, middle + half)
        stream.seek(start * _PAIR)
        pairs_n2 = np.frombuffer(stream.read((stop - start) * _PAIR), "<u8").reshape(-1, 2)
        hashes_n = np.ascontiguousarray(pairs_n2[:, 0])
        first, last = (int(np.searchsorted(hashes_n, np.uint64(wanted), side)) for side in ("left", "right"))
        if (first > 0 or start == 0) and (last < len(hashes_n) or stop == count):
            return [int(row) for row in pairs_n2[first:last, 1]]
        half *= 4


def _values(store: Store, paths: Iterable[str], column: str) -> Iterator[pa.Array]:
    """A column of some parts' rows, a batch at a time; null where a row stands in no index by it."""
    columns = [column, ID] if column in _OTHERS else [column]
    for path in paths:
        with store.open_parquet(path) as opened:
            for batch in opened.iter_batches(columns=columns):
                values = batch.column(column)
                if column in _OTHERS:
                    values = pc.if_else(pc.equal(values, batch.column(ID)), None, values)
                yield values


def _domain_pairs(urls: Iterable[pa.Array]) -> Iterator[NDArray[np.uint64]]:
    """Of each batch, the domains by number and how many rows each has."""
    for column in urls:
        counted: Counter[str] = Counter()
        for host, number in domains.hosts_of(column):
            for domain in domains.with_those_above(host):
                counted[domain] += number
        keys = (key_of(URL, domain) for domain in counted)
        pairs_n2 = np.empty((len(counted), 2), "<u8")
        pairs_n2[:, 0] = np.fromiter(keys, np.uint64, len(counted))
        pairs_n2[:, 1] = np.fromiter(counted.values(), np.uint64, len(counted))
        yield pairs_n2


def _summed(pairs_n2: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Sorted pairs, those of one key added up."""
    if len(pairs_n2) == 0:
        return pairs_n2
    firsts_k = np.flatnonzero(np.diff(pairs_n2[:, 0], prepend=~pairs_n2[:1, 0]))
    return np.column_stack([pairs_n2[firsts_k, 0], np.add.reduceat(pairs_n2[:, 1], firsts_k)])


def _in_order(pairs_n2: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Pairs that stand in order of rows, in order of hash and row."""
    ordered_n2: NDArray[np.uint64] = pairs_n2[np.argsort(pairs_n2[:, 0], kind="stable")]
    return ordered_n2
