"""What a scorer that is made from examples is. Knows no file, no encoder and no member.

Shape suffixes: N examples, D vector width.
"""

import abc
from typing import Any

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from datamask_pipeline.quality.base import Scorer
from datamask_pipeline.settings import Settings

INSTALLED = "installed"


class ExamplesConfig(Settings):
    """The examples; a member adds what it makes of them."""

    examples: str = pydantic.Field(
        description="Parquet or JSON Lines file of your labelled examples. The demonstration's `installed` tells "
        "documentation pages from docstrings; it says nothing of web text.",
    )
    text_column: str = pydantic.Field("text", description="The examples' column of texts.")
    label_column: str | None = pydantic.Field(
        "label", description="The examples' column of labels: numbers or booleans, higher is better."
    )
    vector_column: str | None = pydantic.Field(
        None,
        description="The examples' column of embeddings, if they are embedded already by the same model.",
    )

    @pydantic.model_validator(mode="before")
    @classmethod
    def _has_examples(cls, values: Any) -> Any:
        if isinstance(values, dict) and "examples" not in values:
            raise ValueError(
                "no examples are named; name a Parquet or JSON Lines file of them in `examples`, or score by `rules`, which "
                "needs none"
            )
        return values


class HeldOutConfig(ExamplesConfig):
    """Labelled examples of which some measure what the others train."""

    per_class: int = pydantic.Field(150, ge=10, description="Examples of each class that `installed` takes.")
    held_out_share: float = pydantic.Field(
        0.2, gt=0.0, lt=1.0, description="Share of the examples that measures the scorer and trains nothing."
    )


class TrainedScorer(Scorer):
    """A scorer of the documents' vectors that the score stage makes, once for all crawls, and keeps in the record.

    A member's ``Config`` derives from `ExamplesConfig`; where it derives from `HeldOutConfig`, some examples are held out.
    """

    needs_embeddings = True
    columns = ()

    config: ExamplesConfig

    def __init__(self, config: ExamplesConfig) -> None:
        self.config = config
        self.revision = ""
        self._report: dict[str, Any] = {}

    @abc.abstractmethod
    def fit(self, vectors_ND: NDArray[np.floating[Any]], labels_N: NDArray[np.float64]) -> pa.Table:
        """Fit to examples; the same examples give the same model. Returns the model as rows for `restore`."""

    @abc.abstractmethod
    def restore(self, model: pa.Table) -> None:
        """Take over a model that was fitted before."""

    @abc.abstractmethod
    def figures(
        self, vectors_ND: NDArray[np.floating[Any]], labels_N: NDArray[np.float64]
    ) -> dict[str, float]:
        """How well the fitted model does on examples that trained nothing, by the figure's name."""

    def install(self, model: pa.Table, *, revision: str, report: dict[str, Any]) -> None:
        """Bring a fitted model.

        Args:
            model: Its rows.
            revision: What identifies it.
            report: How it did on held-out examples.
        """
        self.restore(model)
        self.revision, self._report = revision, report

    def report(self) -> dict[str, Any]:
        """How it did on held-out examples; nothing where nobody labelled them."""
        return self._report if self.config.examples != INSTALLED else {}
