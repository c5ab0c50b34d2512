"""A score that the crawl already carries in a column, e.g. FineWeb-Edu's ``score``. Computes nothing."""

import numpy as np
import pyarrow as pa
import pydantic

from datamask_pipeline.errors import InputError
from datamask_pipeline.quality.base import ScoreBatch, Scorer, Scores
from datamask_pipeline.settings import Settings


class ColumnConfig(Settings):
    """Which column, and what its numbers mean."""

    column: str = pydantic.Field("score", description="Name of the documents' column that holds the score.")
    scale_min: float | None = pydantic.Field(None, description="Lowest score there can be, if there is one.")
    scale_max: float | None = pydantic.Field(None, description="Highest score there can be, if there is one.")
    higher_is_better: bool = pydantic.Field(True, description="False turns the sign of every score.")
    model: str = pydantic.Field("", description="What computed the column, for the lineage.")
    revision: str = pydantic.Field("", description="The revision of that, for the lineage.")


class ColumnScorer(Scorer):
    """The column's number as it stands; a null stays a null."""

    name = "column"
    Config = ColumnConfig

    def __init__(self, config: ColumnConfig) -> None:
        self.config = config
        self.columns = (config.column,)
        ends = (config.scale_min, config.scale_max)
        if not config.higher_is_better:
            ends = (
                None if config.scale_max is None else -config.scale_max,
                None if config.scale_min is None else -config.scale_min,
            )
        self.scale = ends
        self.model = config.model or f"column {config.column}"
        self.revision = config.revision

    def identity(self) -> dict[str, object]:
        return super().identity() | {
            "column": self.config.column,
            "higher_is_better": self.config.higher_is_better,
        }

    def score(self, batch: ScoreBatch) -> Scores:
        column = batch.documents.column(self.config.column)
        if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
            raise InputError(
                f"a score column has type {column.type} where numbers are needed",
                field=self.config.column,
                remedy="name a column of numbers",
            )
        values_N = column.cast(pa.float64()).to_numpy()
        missing = {
            int(row): f"column {self.config.column} is null or not finite"
            for row in np.flatnonzero(~np.isfinite(values_N))
        }
        return Scores(values_N if self.config.higher_is_better else -values_N, missing)


SCORER = ColumnScorer
