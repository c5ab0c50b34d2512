"""A linear probe on the embeddings, trained from labelled examples. Knows vectors; no text and no file.

The demonstration has no labels of its own and takes ``installed``: documentation pages and long descriptions
against docstrings, as DCLM's classifier learns reference texts against the crawl. Such a probe knows "reads like
a page of prose", nothing more: on web text with human labels it ranks no better than chance.

Source: Li et al. 2024 (DCLM), section 4.4, for reference-against-crawl; the probe itself is logistic or ridge
regression. Direction: higher is better. Cost: one dot product a document.
"""

from typing import Any

import numpy as np
import pydantic

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.quality.base import ScoreBatch, Scorer, Scores
from datamask_pipeline.quality.linear import LinearProbe
from datamask_pipeline.settings import Settings

INSTALLED = "installed"


class ProbeConfig(Settings):
    """The examples, and how the probe is fitted."""

    examples: str = pydantic.Field(
        description="Parquet or JSON Lines file of your labelled examples. The demonstration's `installed` tells "
        "documentation pages from docstrings; it says nothing of web text.",
    )
    text_column: str = pydantic.Field("text", description="The examples' column of texts.")
    label_column: str = pydantic.Field(
        "label", description="The examples' column of labels: numbers or booleans, higher is better."
    )
    vector_column: str | None = pydantic.Field(
        None,
        description="The examples' column of embeddings, if they are embedded already by the same model.",
    )
    per_class: int = pydantic.Field(150, ge=10, description="Examples of each class that `installed` takes.")
    held_out_share: float = pydantic.Field(
        0.2, gt=0.0, lt=1.0, description="Share of the examples that measures the probe and trains nothing."
    )
    l2: float = pydantic.Field(
        1e-3, gt=0.0, allow_inf_nan=False, description="Strength of the penalty on the weights' squares."
    )

    @pydantic.model_validator(mode="before")
    @classmethod
    def _has_examples(cls, values: Any) -> Any:
        if isinstance(values, dict) and "examples" not in values:
            raise ValueError(
                "the probe has no labelled examples; name a Parquet or JSON Lines file in `examples`, or score "
                "by `rules`, which needs none"
            )
        return values


class ProbeScorer(Scorer):
    """Scores by a fitted probe, which ``install`` brings."""

    name = "probe"
    Config = ProbeConfig
    needs_embeddings = True
    columns = ()
    model = "linear-probe"

    def __init__(self, config: ProbeConfig) -> None:
        self.config = config
        self.revision = ""
        self._probe: LinearProbe | None = None
        self._report: dict[str, object] = {}

    def install(self, probe: LinearProbe, *, revision: str, report: dict[str, object]) -> None:
        """Bring the fitted probe.

        Args:
            probe: The model.
            revision: What identifies it.
            report: How it did on held-out examples.
        """
        self._probe, self.revision, self._report = probe, revision, report
        self.scale = (probe.low, probe.high)

    def score(self, batch: ScoreBatch) -> Scores:
        if self._probe is None or batch.embeddings_ND is None:
            raise ConfigurationError("the probe is not trained yet; run it through the score stage")
        return Scores(np.asarray(self._probe.predict(batch.embeddings_ND)))

    def report(self) -> dict[str, object]:
        """How the probe did on held-out examples; nothing where nobody labelled them."""
        return self._report if self.config.examples != INSTALLED else {}


SCORER = ProbeScorer
