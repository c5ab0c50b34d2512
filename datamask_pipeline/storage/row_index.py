"""Indexes of a table by document id: sorted files beside the parts that lead from an id to its rows.

Knows the columns that name documents; knows no stage. A file holds pairs of unsigned 64-bit numbers,
little-endian: XXH3 of the id's UTF-8, and the row in the artefact; sorted by both, without null ids. As the hashes are
spread evenly, one read where the id should stand finds it, on disk as in an object store.
"""

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from datamask_pipeline.storage.pieces import CheckedFile
from datamask_pipeline.storage.store import Store

ID: Final = "id"
#: Columns that name a document, and the file beside the parts that finds rows by it; no part's file ends so. A row that
#: names itself by another column than `id` stands in no index by that.
INDEX_FILES: Final = {name: f"rows_by_{name}.u64" for name in (ID, "representative_id", "near_copy_of")}

_hash = xxhash.xxh3_64_intdigest
_PAIR: Final = 16
#: Pairs sorted at a time.
_BUCKET_ROWS: Final = 1 << 22
#: Half of the first read spans so many standard deviations of where an evenly spread hash stands, and some pairs more.
_DEVIATIONS, _MARGIN = 6, 16


def indexed_columns(schema: pa.Schema) -> list[str]:
    """The columns by which a table gets an index; none where it has no ids."""
    named = [
        name for name in INDEX_FILES if name in schema.names and pa.types.is_string(schema.field(name).type)
    ]
    return named if ID in named else []


def id_hash(document_id: str) -> int:
    """The number under which an id stands."""
    return _hash(document_id.encode(errors="surrogatepass"))


def ids_of(store: Store, paths: Iterable[str], column: str = ID) -> Iterator[pa.Array]:
    """What an index of some parts' rows is made from, a batch at a time; null where a row stands in none."""
    for path in paths:
        with store.open_parquet(path) as opened:
            for batch in opened.iter_batches(columns=list(dict.fromkeys([column, ID]))):
                names = batch.column(column)
                if column != ID:
                    names = pc.if_else(pc.equal(names, batch.column(ID)), None, names)
                yield names


def write_index(ids: Iterable[pa.Array], target: Path, scratch: Path) -> dict[str, str | int]:
    """Write the index; memory holds a bounded number of pairs, however many there are.

    Args:
        ids: What names each row, in canonical order, a batch at a time; null: nothing.
        target: The file.
        scratch: A folder for what lies between.

    Returns:
        ``bytes`` and ``sha256`` of the file.
    """
    unsorted = scratch / "unsorted.u64"
    with unsorted.open("wb") as stream:
        for pairs_n2 in _pairs(ids):
            stream.write(pairs_n2.tobytes())
    hashed, num_bytes = hashlib.sha256(), 0
    with target.open("wb") as stream:
        for pairs_n2 in _sorted(unsorted):
            data = pairs_n2.tobytes()
            stream.write(data)
            hashed.update(data)
            num_bytes += len(data)
    unsorted.unlink()
    return {"bytes": num_bytes, "sha256": hashed.hexdigest()}


def find_rows(stream: CheckedFile, num_bytes: int, document_id: str) -> list[int]:
    """The rows of an artefact whose ids have the hash of this one: those of the id, and by rare chance of others.

    Args:
        stream: The index, opened.
        num_bytes: Its length.
        document_id: The id.

    Returns:
        Rows of the artefact, counted from 0, ascending.
    """
    wanted, count = id_hash(document_id), num_bytes // _PAIR
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


def _pairs(ids: Iterable[pa.Array]) -> Iterator[NDArray[np.uint64]]:
    first = 0
    for column in ids:
        known = column.drop_null()
        pairs_n2 = np.empty((len(known), 2), "<u8")
        names = known.cast(pa.binary()).to_pylist()
        pairs_n2[:, 0] = np.fromiter(map(_hash, names), np.uint64, len(names))
        rows_n = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        pairs_n2[:, 1] = first + rows_n
        first += len(column)
        yield pairs_n2


def _sorted(file: Path) -> Iterator[NDArray[np.uint64]]:
    """The pairs of a file in order of hash and row, by ranges of hashes of about the same number of pairs."""
    if file.stat().st_size == 0:
        return
    pairs_N2 = np.memmap(file, "<u8", mode="r").reshape(-1, 2)
    num_buckets = -(-len(pairs_N2) // _BUCKET_ROWS)
    edges = [(number << 64) // num_buckets for number in range(num_buckets)] + [1 << 64]
    for low, high in itertools.pairwise(edges):
        found = []
        for start in range(0, len(pairs_N2), _BUCKET_ROWS):
            window_n2 = pairs_N2[start : start + _BUCKET_ROWS]
            inside = (window_n2[:, 0] >= np.uint64(low)) & (window_n2[:, 0] <= np.uint64(high - 1))
            found.append(window_n2[inside])
        hashes_n, rows_n = (np.concatenate([each[:, column] for each in found]) for column in (0, 1))
        order_n = np.argsort(hashes_n, kind="stable")
        pairs_n2 = np.empty((len(order_n), 2), "<u8")
        pairs_n2[:, 0], pairs_n2[:, 1] = hashes_n[order_n], rows_n[order_n]
        yield pairs_n2
