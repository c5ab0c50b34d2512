"""The documents nearest to one by cosine, and those of a mask that crowd one out. Knows no learner.

Shape suffixes: M rows of the mask, n of a batch, m of a chunk, D embedding dimensions.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datamask_pipeline.audit.reader import Reader, Row, input_location
from datamask_pipeline.audit.stated import check_array
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.stages.select import SelectConfig, blocks_of, judged_in
from datamask_pipeline.storage import array_files
from datamask_pipeline.storage.npy import mapped
from datamask_pipeline.storage.ref import ref_of

NUM_NEIGHBOURS: Final = 5
#: Positions in a release's canonical order, and the vectors of these documents.
Chunk = tuple[NDArray[np.int64], NDArray[Any]]


def nearest(
    own_D: NDArray[Any], chunks: Iterable[Chunk], count: int = NUM_NEIGHBOURS
) -> list[tuple[float, int]]:
    """The documents of the highest cosine to a vector, exact in float64; memory holds one chunk.

    Args:
        own_D: The vector, of any length but 0.
        chunks: The documents that are compared, in any order.
        count: How many are wanted.

    Returns:
        Cosine and position, the nearest first; of equals the first in canonical order.
    """
    unit_D = _unit(own_D[None])[0]
    best: list[tuple[float, int]] = []
    for positions_m, vectors_mD in chunks:
        cosines_m = _unit(vectors_mD) @ unit_D
        top = np.lexsort((positions_m, -cosines_m))[:count]
        found = [(float(cosines_m[place]), -int(positions_m[place])) for place in top]
        best = heapq.nlargest(count, [*best, *found])
    return [(cosine, -position) for cosine, position in best]


def nearest_in_block(
    reader: Reader, mask: Mapping[str, Any], index_row: Mapping[str, Any], row: int
) -> list[Row]:
    """The chosen documents of the same block with the highest cosine to one of the mask's documents.

    Vectors are read where they lie, those of chosen documents alone; memory holds a bit a row of the mask and one batch.
    Every file of vectors that is read is hashed first.

    Args:
        reader: Of the record.
        mask: The mask's manifest.
        index_row: The document's row in the index that the mask was learnt from.
        row: Its row in the mask.

    Returns:
        ``crawl``, ``id`` and ``cosine``, the nearest first.

    Raises:
        IntegrityError: vectors are not those that were written.
    """
    vectors = _Vectors(reader, mask)
    own_D = vectors.read(index_row["crawl"], index_row["shard"], np.array([index_row["row"]]))[0]
    chosen = _chosen_positions(reader, mask, row)
    location = input_location(mask, "index")
    assert location is not None

    def chunks() -> Iterator[Chunk]:
        for batch in reader.tables.batches(location, ["position", "crawl", "shard", "row"]):
            positions_n = batch.column("position").to_numpy()
            kept = batch.filter(pa.array(np.isin(positions_n, chosen, assume_unique=True)))
            for crawl, shard, places in _by_file(kept):
                rows_m = kept.column("row").to_numpy()[places]
                yield kept.column("position").to_numpy()[places], vectors.read(crawl, shard, rows_m)

    best = nearest(own_D, chunks())
    names: dict[int, Row] = {}
    for batch in reader.tables.batches(location, ["position", "crawl", "id"]):
        wanted = np.isin(batch.column("position").to_numpy(), [position for _, position in best])
        names |= {each["position"]: each for each in batch.filter(pa.array(wanted)).to_pylist()}
    return [
        {"crawl": names[position]["crawl"], "id": names[position]["id"], "cosine": cosine}
        for cosine, position in best
    ]


def _unit(vectors_nD: NDArray[Any]) -> NDArray[np.float64]:
    vectors_nD = np.asarray(vectors_nD, np.float64)
    unit_nD: NDArray[np.float64] = vectors_nD / np.linalg.norm(vectors_nD, axis=1, keepdims=True)
    return unit_nD


class _Vectors:
    """Vectors of a mask's documents, (n, D)."""

    def __init__(self, reader: Reader, mask: Mapping[str, Any]) -> None:
        self._reader, self._mask = reader, mask
        self._files: dict[str, dict[str, Path]] = {}
        self._checked: set[tuple[str, str]] = set()

    def read(self, crawl: str, shard: str, rows_n: NDArray[np.int64]) -> NDArray[Any]:
        location = input_location(self._mask, f"embeddings/{crawl}")
        assert location is not None
        manifest, store = self._reader.tables.manifest(location), self._reader.store
        if crawl not in self._files:
            self._files[crawl] = array_files(store, ref_of(manifest))
        if (crawl, shard) not in self._checked:
            record = next(part["array"] for part in manifest["parts"] if part["name"] == shard)
            for finding in check_array(store, f"{location}/{shard}.npy", record):
                raise IntegrityError(
                    f"{store.root}/{finding.file}: {finding.problem}; delete it and run stage embed again"
                )
            self._checked.add((crawl, shard))
        found_nD: NDArray[Any] = mapped(self._files[crawl][shard])[rows_n]
        return found_nD


def _chosen_positions(reader: Reader, mask: Mapping[str, Any], row: int) -> NDArray[np.int64]:
    """Positions of what was chosen in the block of one of the mask's rows, and of what was held beside every block."""
    selected, positions, judged = [], [], []
    for batch in reader.tables.batches(mask["location"], ["position", "selected", "reason"]):
        judged.append(judged_in(batch.column("reason")))
        selected.append(batch.column("selected").to_numpy(zero_copy_only=False))
        positions.append(batch.column("position").to_numpy())
    selected_M, positions_M = np.concatenate(selected), np.concatenate(positions)
    judged_M, config = np.concatenate(judged), SelectConfig.model_construct(**mask["basis"]["config"])
    others = [block for block in blocks_of(len(selected_M), config, judged_M) if row not in block]
    if judged_M[row] and others:
        selected_M[np.concatenate(others)] = False
    chosen: NDArray[np.int64] = positions_M[selected_M]
    return chosen


def _by_file(batch: Any) -> Iterator[tuple[str, str, NDArray[np.int64]]]:
    """Crawl, shard and places of a batch's rows."""
    names = list(zip(batch.column("crawl").to_pylist(), batch.column("shard").to_pylist(), strict=True))
    for crawl, shard in dict.fromkeys(names):
        yield crawl, shard, np.flatnonzero([name == (crawl, shard) for name in names])
