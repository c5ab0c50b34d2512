"""Scores that stand in a Parquet file or folder, taken by document id. Computes nothing; knows no model and no crawl.

Direction: as its settings say. Cost: the file is read once a crawl; an index holds 24 bytes a row of it.

Shape suffixes: R rows of the imported files, N documents.
"""

import functools
import hashlib
from collections.abc import Sequence

import numpy as np
import pydantic
from numpy.typing import NDArray

from datamask_pipeline.embedding.imported import ImportedFiles
from datamask_pipeline.errors import InputError
from datamask_pipeline.quality.base import ScoreBatch, Scorer, Scores
from datamask_pipeline.quality.given import GivenConfig, no_number, require_numbers

#: Why a document has no score whose id no row has.
NOT_LISTED = "no row of the imported scores has its id"

#: Bytes of an id's hash: so many that no two ids ever share theirs.
KEY_BYTES = 16


class ImportedConfig(GivenConfig):
    """Which file, and what its numbers mean."""

    file: str = pydantic.Field(
        description="A Parquet file or folder with ids and scores that are taken instead of being computed."
    )
    id_column: str = pydantic.Field("id", description="Its column of document ids.")
    score_column: str = pydantic.Field("score", description="Its column of scores.")


class ImportedScorer(Scorer):
    """The number that stands beside a document's id; none where the id is not listed or the number is null."""

    name = "imported"
    Config = ImportedConfig
    columns = ("id",)

    def __init__(self, config: ImportedConfig) -> None:
        self.config = config
        self._files = ImportedFiles(config.file, config.id_column, config.score_column, what="scores")
        for path, kind in zip(self._files.paths, self._files.types, strict=True):
            require_numbers(kind, config.score_column, str(path))
        self._digest = self._files.digest
        self.scale = config.scale()
        self.model = config.model or f"column {config.score_column}"
        self.revision = config.revision or f"sha256:{self._digest}"

    def identity(self) -> dict[str, object]:
        return super().identity() | {
            "digest": self._digest,
            "id_column": self.config.id_column,
            "score_column": self.config.score_column,
            "higher_is_better": self.config.higher_is_better,
        }

    def score(self, batch: ScoreBatch) -> Scores:
        """Look up a batch.

        Raises:
            InputError: the file has no rows, an id in it is null or stands twice, or it is broken.
        """
        keys_R, values_R = self._index
        wanted_N = _keys(batch.documents.column("id").to_pylist())
        rows_N = np.minimum(np.searchsorted(keys_R, wanted_N), len(keys_R) - 1)
        listed_N = keys_R[rows_N] == wanted_N
        values_N = np.where(listed_N, values_R[rows_N], np.nan)
        null = no_number(self.config.score_column)
        missing = {
            int(row): null if listed_N[row] else NOT_LISTED for row in np.flatnonzero(~np.isfinite(values_N))
        }
        return Scores(values_N, missing)

    @functools.cached_property
    def _index(self) -> tuple[NDArray[np.bytes_], NDArray[np.float64]]:
        """Hashes of all ids, ascending, and the scores beside them."""
        keys, values = [_keys([])], [np.empty(0)]
        for path, first, batch in self._files.batches():
            names = batch.column(self.config.id_column).to_pylist()
            if None in names:
                raise InputError(
                    "an id is null",
                    file=str(path),
                    row=first + names.index(None),
                    field=self.config.id_column,
                    remedy="give every row the id of its document",
                )
            keys.append(_keys(names))
            values.append(self.config.directed(batch.column(self.config.score_column)))
        keys_R, values_R = np.concatenate(keys), np.concatenate(values)
        if not len(keys_R):
            raise InputError(
                "the imported scores have no rows", file=self.config.file, remedy="correct the path"
            )
        order_R = np.argsort(keys_R, kind="stable")
        keys_R, values_R = keys_R[order_R], values_R[order_R]
        again = order_R[1:][keys_R[1:] == keys_R[:-1]]
        if len(again):
            raise self._repeated(int(again.min()))
        return keys_R, values_R

    def _repeated(self, number: int) -> InputError:
        """What to say of the row of that number, counted over all files."""
        for path, first, batch in self._files.batches():
            if number < batch.num_rows:
                return InputError(
                    "an id stands twice",
                    file=str(path),
                    row=first + number,
                    field=self.config.id_column,
                    value=batch.column(self.config.id_column)[number].as_py(),
                    remedy="keep one row per document",
                )
            number -= batch.num_rows
        return InputError("the imported scores changed while they were read", file=self.config.file)


def _keys(names: Sequence[str]) -> NDArray[np.bytes_]:
    """A hash of each id."""
    hashes = (hashlib.blake2b(name.encode(), digest_size=KEY_BYTES).digest() for name in names)
    return np.frombuffer(b"".join(hashes), dtype=f"S{KEY_BYTES}")


SCORER = ImportedScorer
