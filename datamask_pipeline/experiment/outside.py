"""A subset that somebody else chose, as an arm: its rows by id or by content. Knows no arm.

Shape suffixes: N documents.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datamask_pipeline.errors import InputError
from datamask_pipeline.sources.content import content_hashes
from datamask_pipeline.sources.subset_rows import find_files, read_batches


@dataclass(frozen=True)
class Outside:
    """Rows chosen elsewhere.

    Attributes:
        ids: Of rows that have one.
        contents: Content hashes of rows that have a text: of exact copies a pool has one, maybe under another id.
        digest: Of both, whatever the order of the rows and the names of the files.
        num_rows: All rows, repeated ones and unreadable ones too.
    """

    ids: frozenset[str]
    contents: frozenset[str]
    digest: str
    num_rows: int

    def holds(self, ids: Sequence[str], texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which documents are among the rows, (N,)."""
        by_id_N = np.array([name in self.ids for name in ids], bool)
        if not self.contents:
            return by_id_N
        hashes = content_hashes(pa.array(texts, pa.string())).to_pylist()
        return by_id_N | np.array([found in self.contents for found in hashes], bool)


def read_outside(path: Path) -> Outside:
    """Read the rows of a file or folder in Parquet or JSON Lines, with `id`, or with `text` or `content`.

    Raises:
        InputError: there is no file, it cannot be read, or no row has an id or a text.
    """
    ids: set[str] = set()
    contents: set[str] = set()
    num_rows = 0
    for batch in read_batches(find_files(str(path), None), {}):
        num_rows += len(batch.ids)
        ids |= {name for name in batch.ids if name is not None}
        texts = pa.array([text for text in batch.texts if text is not None], pa.binary())
        contents |= set(content_hashes(texts.cast(pa.string())).to_pylist())
    if not ids and not contents:
        raise InputError(
            f"none of {num_rows:,} rows has an id or a text",
            file=str(path),
            remedy="give a column `id`, `text` or `content`",
        )
    found = hashlib.sha256("\n".join([*sorted(ids), "", *sorted(contents)]).encode()).hexdigest()
    return Outside(frozenset(ids), frozenset(contents), found, num_rows)
