"""The chosen documents nearest to one that was left out: exact cosines, read window by window. Knows no learner.

Shape suffixes: M rows of the mask, n of a batch, D embedding dimensions.
"""

import heapq
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datamask_pipeline.audit.reader import Reader, Row, input_location
from datamask_pipeline.audit.stated import check_array
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.stages.select import SelectConfig, blocks_of
from datamask_pipeline.storage import array_files
from datamask_pipeline.storage.npy import mapped
from datamask_pipeline.storage.ref import ref_of

NUM_NEIGHBOURS: Final = 5


def nearest_chosen(
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
    best: list[tuple[float, int, str, str]] = []
    location = input_location(mask, "index")
    assert location is not None
    for batch in reader.tables.batches(location, ["position", "crawl", "id", "shard", "row"]):
        positions_n = batch.column("position").to_numpy()
        kept = batch.filter(pa.array(np.isin(positions_n, chosen, assume_unique=True)))
        for crawl, shard, places in _by_file(kept):
            cosines_n = vectors.read(crawl, shard, kept.column("row").to_numpy()[places]) @ own_D
            for place in np.argsort(-cosines_n, kind="stable")[:NUM_NEIGHBOURS].tolist():
                at = int(places[place])
                position = int(kept.column("position")[at].as_py())
                best.append((float(cosines_n[place]), -position, crawl, kept.column("id")[at].as_py()))
        best = heapq.nlargest(NUM_NEIGHBOURS, best)
    return [{"crawl": crawl, "id": name, "cosine": cosine} for cosine, _, crawl, name in best]


class _Vectors:
    """Unit vectors of a mask's documents, (n, D) in float64."""

    def __init__(self, reader: Reader, mask: Mapping[str, Any]) -> None:
        self._reader, self._mask = reader, mask
        self._files: dict[str, dict[str, Path]] = {}
        self._checked: set[tuple[str, str]] = set()

    def read(self, crawl: str, shard: str, rows_n: NDArray[np.int64]) -> NDArray[np.float64]:
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
        found_nD = np.asarray(mapped(self._files[crawl][shard])[rows_n], np.float64)
        unit_nD: NDArray[np.float64] = found_nD / np.linalg.norm(found_nD, axis=1, keepdims=True)
        return unit_nD


def _chosen_positions(reader: Reader, mask: Mapping[str, Any], row: int) -> NDArray[np.int64]:
    """Positions of what was chosen in the block of one of the mask's rows."""
    selected, positions = [], []
    for batch in reader.tables.batches(mask["location"], ["position", "selected"]):
        selected.append(batch.column("selected").to_numpy(zero_copy_only=False))
        positions.append(batch.column("position").to_numpy())
    selected_M, positions_M = np.concatenate(selected), np.concatenate(positions)
    blocks = blocks_of(len(selected_M), SelectConfig.model_construct(**mask["basis"]["config"]))
    if len(blocks) > 1:
        mine_M = np.zeros(len(selected_M), np.bool_)
        mine_M[next(block for block in blocks if row in block)] = True
        selected_M = selected_M & mine_M
    chosen: NDArray[np.int64] = positions_M[selected_M]
    return chosen


def _by_file(batch: Any) -> Iterator[tuple[str, str, NDArray[np.int64]]]:
    """Crawl, shard and places of a batch's rows."""
    names = list(zip(batch.column("crawl").to_pylist(), batch.column("shard").to_pylist(), strict=True))
    for crawl, shard in dict.fromkeys(names):
        yield crawl, shard, np.flatnonzero([name == (crawl, shard) for name in names])
