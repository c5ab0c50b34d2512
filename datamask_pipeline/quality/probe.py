"""A linear probe on the embeddings, trained from labelled examples. Knows vectors; no text and no file.

The demonstration has no labels of its own and takes ``installed``: documentation pages and long descriptions
against docstrings, as DCLM's classifier learns reference texts against the crawl. Such a probe knows "reads like
a page of prose", nothing more: on web text with human labels it ranks no better than chance.

Source: Li et al. 2024 (DCLM), section 4.4, for reference-against-crawl; the probe itself is logistic or ridge
regression. Direction: higher is better. Cost: one dot product a document. Shape suffixes: N examples, D vector width.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from datamask_pipeline import schema
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.quality import linear
from datamask_pipeline.quality.base import ScoreBatch, Scores
from datamask_pipeline.quality.trained import HeldOutConfig, TrainedScorer


class ProbeConfig(HeldOutConfig):
    """The examples, and how the probe is fitted."""

    label_column: str | None = pydantic.Field(
        "label",
        description="The examples' column of labels: numbers or booleans, higher is better. Null: each text is told from "
        "itself with its words in random order, which no metric notices.",
    )

    l2: float = pydantic.Field(1e-3, gt=0.0, description="Strength of the penalty on the weights' squares.")


class ProbeScorer(TrainedScorer):
    """Scores by a fitted probe, which ``install`` brings."""

    name = "probe"
    Config = ProbeConfig
    told_by_revision = True
    model = "linear-probe"

    config: ProbeConfig

    _probe: linear.LinearProbe | None = None

    def fit(self, vectors_ND: NDArray[np.floating[Any]], labels_N: NDArray[np.float64]) -> pa.Table:
        probe = linear.fit(vectors_ND, labels_N, l2=self.config.l2)
        row = {
            "task": probe.task,
            "coefficients": probe.coefficients_D.tolist(),
            "intercept": probe.intercept,
            "low": probe.low,
            "high": probe.high,
        }
        return pa.Table.from_pylist([row], schema=schema.PROBE)

    def restore(self, model: pa.Table) -> None:
        (row,) = model.to_pylist()
        self._probe = linear.LinearProbe(
            row["task"], np.array(row["coefficients"]), row["intercept"], row["low"], row["high"]
        )
        self.scale = (self._probe.low, self._probe.high)

    def figures(
        self, vectors_ND: NDArray[np.floating[Any]], labels_N: NDArray[np.float64]
    ) -> dict[str, float]:
        return linear.evaluate(self._fitted(), vectors_ND, labels_N)

    def score(self, batch: ScoreBatch) -> Scores:
        probe = self._fitted()
        assert batch.embeddings_ND is not None, "needs_embeddings was honoured"
        return Scores(np.asarray(probe.predict(batch.embeddings_ND)))

    def _fitted(self) -> linear.LinearProbe:
        if self._probe is None:
            raise ConfigurationError("the probe is not trained yet; run it through the score stage")
        return self._probe


SCORER = ProbeScorer
