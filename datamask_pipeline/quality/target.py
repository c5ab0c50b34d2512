"""Likeness to examples that are shown, such as a benchmark's questions: the cosine to the nearest. Knows vectors alone.

Examples are embedded by the documents' own model, or bring vectors of it; nothing is trained, so no label is needed.
Where there is one, rows whose label is above 0 are the examples. Documents that hold benchmark questions word for word
come first too: leave them out by ``pool.decontaminate``, and show training splits, never what is evaluated.

Source: after BETR, Mizrahi et al. 2025 (arXiv 2507.12466), whose score of a sample, by similarity to benchmark examples, is
taught to a classifier; here every document has a vector, so each gets that score itself. Direction: higher is better.
Cost: a dot product for every example a document. Shape suffixes: N documents, T examples, D vector width.
"""

from typing import Any, Self

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from datamask_pipeline import schema
from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.quality.base import ScoreBatch, Scores
from datamask_pipeline.quality.trained import INSTALLED, ExamplesConfig, TrainedScorer


class TargetConfig(ExamplesConfig):
    """The examples."""

    examples: str = pydantic.Field(
        description="Parquet or JSON Lines file of texts that documents shall be like, e.g. solved benchmark questions."
    )
    label_column: str | None = pydantic.Field(
        None,
        description="The file's column that tells examples (above 0) from other rows; null: every row is one.",
    )

    @pydantic.model_validator(mode="after")
    def _own_examples(self) -> Self:
        if self.examples == INSTALLED:
            raise ValueError(f"`{INSTALLED}` has no targets; name a Parquet or JSON Lines file in `examples`")
        return self


class TargetScorer(TrainedScorer):
    """Scores by the nearest example, which ``install`` brings."""

    name = "target"
    Config = TargetConfig
    told_by_revision = True
    model = "nearest-target"
    scale = (-1.0, 1.0)

    config: TargetConfig

    _examples_TD: NDArray[np.float32] | None = None

    def fit(self, vectors_ND: NDArray[np.floating[Any]], labels_N: NDArray[np.float64]) -> pa.Table:
        examples_TD = vectors_ND[labels_N > 0].astype(np.float64)
        norms_T = np.linalg.norm(examples_TD, axis=1, keepdims=True)
        if not len(examples_TD) or not (norms_T > 0).all():
            raise InputError(
                "no row is a target" if not len(examples_TD) else "a target's vector is zero",
                file=self.config.examples,
                remedy="give rows whose label is above 0, or vectors of the documents' model",
            )
        rows = [
            {"task": "target", "coefficients": row.tolist(), "intercept": 0.0, "low": -1.0, "high": 1.0}
            for row in examples_TD / norms_T
        ]
        return pa.Table.from_pylist(rows, schema=schema.PROBE)

    def restore(self, model: pa.Table) -> None:
        self._examples_TD = np.array(model.column("coefficients").to_pylist(), dtype=np.float32)

    def figures(
        self, vectors_ND: NDArray[np.floating[Any]], labels_N: NDArray[np.float64]
    ) -> dict[str, float]:
        return {}

    def score(self, batch: ScoreBatch) -> Scores:
        from datamask_pipeline.near_copies.coverage import largest_cosines

        if self._examples_TD is None:
            raise ConfigurationError(
                "the target's examples are not there yet; run it through the score stage"
            )
        assert batch.embeddings_ND is not None, "needs_embeddings was honoured"
        return Scores(largest_cosines(self._examples_TD, batch.embeddings_ND))


SCORER = TargetScorer
