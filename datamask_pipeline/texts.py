"""Texts out of the record, by what the pool decided. Knows the pool's columns and the documents'; no stage.

Memory holds a row group of texts, and so many rows of the pool as are sampled.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from datamask_pipeline.arrays import values_of
from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.storage import ROW_GROUP_ROWS, Ref, Store
from datamask_pipeline.storage.aligned import Aligned
from datamask_pipeline.storage.refusals import reading

#: Texts read at a time: where few of a row group are wanted, what is held of each group counts more than its texts.
_TEXTS: Final = 64
_SAMPLED: Final = ["position", "id", "content_hash"]


def pool_documents(
    store: Store,
    candidates: Ref,
    documents: Mapping[str, Ref],
    flag: Literal["eligible", "validation"],
    *,
    limit: int | None = None,
) -> Iterator[tuple[str, str]]:
    """Id and text of the pool's documents of one kind, in canonical order.

    Args:
        store: The record.
        candidates: The release's candidates.
        documents: Documents of each crawl, in the release's order.
        flag: The candidates' column that says which.
        limit: Take this many, those whose content hash is smallest: a uniform sample that depends on
            content alone.

    Raises:
        IntegrityError: a candidate does not stand in its place among the documents.
    """
    sample = None if limit is None else _sample(store, candidates, flag, limit)
    first = 0
    for (crawl, ref), part in zip(documents.items(), store.manifest(candidates)["parts"], strict=True):
        last = first + int(part["rows"])
        texts = Aligned(store, ref, first=first, groups=1)
        chosen = (
            _flagged(store, candidates, part["name"], flag, ["position", "id"])
            if sample is None
            else [_between(sample, first, last)]
        )
        for rows in chosen:
            for start in range(0, rows.num_rows, _TEXTS):
                yield from _read(texts, rows.slice(start, _TEXTS), crawl)
        first = last


def _flagged(store: Store, candidates: Ref, name: str, flag: str, columns: list[str]) -> Iterator[pa.Table]:
    """Columns of the rows of one part of which a flag is set."""
    path = store.file_path(candidates, f"{name}.parquet")
    with store.open_parquet(path) as part, reading(path):
        for batch in part.iter_batches(ROW_GROUP_ROWS, columns=[*columns, flag]):
            yield pa.Table.from_batches([batch.filter(batch[flag]).select(columns)])


def _sample(store: Store, candidates: Ref, flag: str, limit: int) -> pa.Table:
    """The rows whose content hash is smallest, in canonical order."""
    held: list[pa.Table] = []
    largest = None
    for name in store.part_names(candidates):
        for rows in _flagged(store, candidates, name, flag, _SAMPLED):
            held.append(
                rows if largest is None else rows.filter(pc.less_equal(rows["content_hash"], largest))
            )
            if sum(each.num_rows for each in held) >= 2 * limit:
                held = [_smallest(held, limit)]
                largest = held[0]["content_hash"][-1]
    return _smallest(held, limit).sort_by("position")


def _smallest(tables: list[pa.Table], limit: int) -> pa.Table:
    order = [("content_hash", "ascending"), ("position", "ascending")]
    return pa.concat_tables(tables).sort_by(order).slice(0, limit).combine_chunks()


def _between(rows: pa.Table, first: int, last: int) -> pa.Table:
    """The rows of positions from ``first`` to before ``last``, of rows in their order."""
    start, stop = np.searchsorted(_positions(rows), [first, last])
    return rows.slice(start, stop - start)


def _positions(rows: pa.Table) -> NDArray[np.int64]:
    return values_of(rows["position"].combine_chunks(), np.int64)


def _read(texts: Aligned, rows: pa.Table, crawl: str) -> Iterator[tuple[str, str]]:
    """Ids and texts of some rows of a crawl."""
    found, is_found_n = texts.at(_positions(rows), ["id", "text"])
    ids = found["id"].to_pylist()
    if not is_found_n.all() or ids != rows["id"].to_pylist():
        raise IntegrityError(
            f"candidates of crawl {crawl!r} do not stand in their places among its documents, from "
            f"{rows['id'][0].as_py()!r} on; run stage 'pool' of that release again"
        )
    yield from zip(ids, found["text"].to_pylist(), strict=True)
