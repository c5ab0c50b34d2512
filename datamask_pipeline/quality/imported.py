"""Scores that stand in a Parquet file or folder, taken by document id. Computes nothing; knows no model and no crawl.

Direction: as its settings say. Cost: the file is read once a crawl, into a table that spills to disk; a window of
documents is joined to all of it, 20 ms a million rows: raise `score.window_documents` for larger files.

Shape suffixes: N documents.
"""

import contextlib
import functools
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from datamask_pipeline import duck
from datamask_pipeline.embedding.imported import ImportedFiles
from datamask_pipeline.errors import InputError
from datamask_pipeline.quality.base import ScoreBatch, Scorer, Scores
from datamask_pipeline.quality.given import GivenConfig, no_number, require_numbers, require_within

if TYPE_CHECKING:
    import duckdb

#: Why a document has no score whose id no row has.
NOT_LISTED = "no row of the imported scores has its id"


class ImportedConfig(GivenConfig):
    """Which file, and what its numbers mean."""

    file: str = pydantic.Field(
        description="A Parquet file or folder with ids and scores that are taken instead of being computed."
    )
    id_column: str = pydantic.Field("id", description="Its column of document ids.")
    score_column: str = pydantic.Field("score", description="Its column of scores.")


class ImportedNumbers(ImportedFiles):
    """Numbers, one per document.

    Args:
        location: The file or folder.
        id_column: Column of document ids.
        value_column: Column of numbers.
        directed: Makes one number of each value, higher is better.
    """

    settings = (
        "`file` of scorer imported",
        "`id_column` of scorer imported",
        "`score_column` of scorer imported",
    )

    def __init__(
        self,
        location: str,
        id_column: str,
        value_column: str,
        directed: Callable[[pa.Array], NDArray[np.float64]],
    ) -> None:
        super().__init__(location, id_column, value_column, what="scores")
        self._directed = directed

    @functools.cached_property
    def database(self) -> "duckdb.DuckDBPyConnection":
        """A database with a table ``imported`` of every row: file (its place in ``paths``), row, id and value.

        It is filled when it is first asked for, spills to disk, and is closed with this object.

        Raises:
            InputError: a file is broken, or an id is null, not UTF-8 or stands twice.
        """
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            connection = stack.enter_context(duck.database(Path(folder), memory_limit=duck.STAGE_MEMORY))
            self._fill(connection)
            self._refuse_repeated(connection)
            weakref.finalize(self, stack.pop_all().close)
        return connection

    def _fill(self, connection: "duckdb.DuckDBPyConnection") -> None:
        connection.execute("CREATE TABLE imported (file INTEGER, row BIGINT, id VARCHAR, value DOUBLE)")
        for file, first, batch in self.batches([self.id_column, self.value_column]):
            taken = {
                "file": np.full(batch.num_rows, file),
                "row": np.arange(first, first + batch.num_rows),
                "id": self.strings(batch.column(self.id_column), self.paths[file], first),
                "value": self._directed(batch.column(self.value_column)),
            }
            connection.register("taken", pa.table(taken))
            connection.execute("INSERT INTO imported SELECT * FROM taken")

    def _refuse_repeated(self, connection: "duckdb.DuckDBPyConnection") -> None:
        found = connection.execute("""
            SELECT file, row, id FROM imported JOIN (SELECT id FROM imported GROUP BY id HAVING count(*) > 1) USING (id)
            QUALIFY row_number() OVER (PARTITION BY id ORDER BY file, row) > 1 ORDER BY file, row LIMIT 1
        """).fetchone()
        if found is not None:
            raise self.repeated(*found)


class ImportedScorer(Scorer):
    """The number that stands beside a document's id; none where the id is not listed or the number is null."""

    name = "imported"
    Config = ImportedConfig
    told_by_revision = True
    columns = ("id",)

    def __init__(self, config: ImportedConfig) -> None:
        self.config = config
        self._files = ImportedNumbers(config.file, config.id_column, config.score_column, config.directed)
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
            InputError: the file has no rows, an id in it is null, not UTF-8 or stands twice, or it is broken.
        """
        ids = batch.documents.column("id").cast(pa.string())
        self._database.register("asked", pa.table({"document": np.arange(len(ids)), "id": ids}))
        found = self._database.sql(
            """
            SELECT imported.row IS NOT NULL AS listed, value FROM asked LEFT JOIN imported USING (id) ORDER BY document
            """
        ).to_arrow_table()
        listed_N = np.asarray(found.column("listed"))
        values_N = np.asarray(found.column("value"))
        require_within(self.config, values_N, self.config.score_column, ids, self.config.file)
        null = no_number(self.config.score_column)
        missing = {
            int(row): null if listed_N[row] else NOT_LISTED for row in np.flatnonzero(~np.isfinite(values_N))
        }
        return Scores(values_N, missing)

    @functools.cached_property
    def _database(self) -> "duckdb.DuckDBPyConnection":
        """The files' rows, each id once."""
        connection = self._files.database
        if connection.execute("SELECT count(*) FROM imported").fetchall() == [(0,)]:
            raise InputError(
                "the imported scores have no rows", file=self.config.file, remedy="correct the path"
            )
        return connection


SCORER = ImportedScorer
