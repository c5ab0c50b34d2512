"""A score that the crawl already carries in a column, e.g. FineWeb-Edu's ``score``. Computes nothing."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pydantic

from datamask_pipeline.quality.base import ScoreBatch, Scorer, Scores
from datamask_pipeline.quality.given import GivenConfig, no_number, require_numbers, require_within


class ColumnConfig(GivenConfig):
    """Which column, and what its numbers mean."""

    column: str = pydantic.Field("score", description="Name of the documents' column that holds the score.")


class ColumnScorer(Scorer):
    """The column's number as it stands; a null stays a null."""

    name = "column"
    Config = ColumnConfig
    told_by_revision = True

    def __init__(self, config: ColumnConfig) -> None:
        self.config = config
        self.columns = (config.column, "id")
        self.scale = config.scale()
        self.model = config.model or f"column {config.column}"
        self.revision = config.revision

    def identity(self) -> dict[str, object]:
        return super().identity() | {
            "column": self.config.column,
            "higher_is_better": self.config.higher_is_better,
        }

    def check_columns(self, kinds: Mapping[str, pa.DataType]) -> None:
        if (kind := kinds.get(self.config.column)) is not None:
            require_numbers(kind, self.config.column)

    def score(self, batch: ScoreBatch) -> Scores:
        column = batch.documents.column(self.config.column)
        require_numbers(column.type, self.config.column)
        values_N = self.config.directed(column)
        require_within(self.config, values_N, self.config.column, batch.documents.column("id"))
        reason = no_number(self.config.column)
        return Scores(values_N, {int(row): reason for row in np.flatnonzero(~np.isfinite(values_N))})


SCORER = ColumnScorer
