"""What a quality scorer is. Knows no member, no file and no storage.

Shape suffixes: N documents, D embedding width.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datamask_pipeline.settings import Settings

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True)
class ScoreBatch:
    """Consecutive documents of one crawl.

    Attributes:
        documents: The columns that the scorer asked for.
        embeddings_ND: Their unit vectors, if the scorer asked for them.
        head_scores_N: Scores that the embedding pass computed along the way, by scorer name.
    """

    documents: pa.Table
    embeddings_ND: NDArray[np.float32] | None = None
    head_scores_N: Mapping[str, NDArray[np.float64]] = dataclasses.field(default_factory=dict)

    def texts(self) -> list[str]:
        texts: list[str] = self.documents.column("text").to_pylist()
        return texts


@dataclasses.dataclass(frozen=True)
class Scores:
    """One score per document of a batch.

    Attributes:
        values_N: float64; what stands in the rows of ``missing`` has no meaning.
        missing: Row -> why it has no score.
    """

    values_N: NDArray[np.float64]
    missing: Mapping[int, str] = dataclasses.field(default_factory=dict)


class Scorer(abc.ABC):
    """A family member; the subclass is built from its ``Config``.

    Attributes:
        name: The name it is found by; an instance carries its label too, as its scores do.
        Config: Its settings, a model that imports nothing heavy.
        needs_embeddings: Whether it reads the documents' vectors.
        batch_dependent: Whether the documents scored together show in a score's last bits.
        told_by_revision: Whether `revision`, and what `identity` names beside it, follow from all settings that decide
            scores; where not, these settings are part of `identity`, as an instance keeps them in ``config``.
        columns: Columns of the documents it reads.
        scale: Lowest and highest score there can be; ``None`` where there is no such limit.
        model: What computes the score, as the lineage names it.
        revision: The revision of that, down to the normalisation of the text.
    """

    name: str
    Config: ClassVar[type[Settings]]
    needs_embeddings: ClassVar[bool] = False
    batch_dependent: ClassVar[bool] = False
    told_by_revision: ClassVar[bool] = False
    columns: tuple[str, ...] = ("text",)
    scale: tuple[float | None, float | None]
    model: str
    revision: str

    config: Any

    def __init__(self, config: Settings) -> None:
        self.config = config

    def check(self) -> None:  # noqa: B027 - most scorers have nothing to add to their constructor
        """Refuse what scoring would refuse, as far as it shows without a document and without loading a model.

        Raises:
            ConfigurationError: a model or a device is not there.
            InputError: a file is not there, or lacks what is read of it.
        """

    def check_columns(self, kinds: Mapping[str, pa.DataType]) -> None:  # noqa: B027 - most scorers read text alone
        """Refuse columns of a type that scoring would refuse.

        Args:
            kinds: Types of the documents' columns, by name; those of `columns` that are known are among them.

        Raises:
            InputError: naming column and type.
        """

    @abc.abstractmethod
    def score(self, batch: ScoreBatch) -> Scores:
        """Score a batch; every document gets a finite number or a reason why it has none."""

    def identity(self) -> dict[str, Any]:
        """What decides the scores: goes into the fingerprint."""
        settings = {} if self.told_by_revision else self.config.result_config()
        about = {"name": self.name, "model": self.model, "revision": self.revision, "scale": self.scale}
        return settings | about

    def report(self) -> dict[str, Any]:
        """Anything worth keeping beside the scores, e.g. how a trained scorer did on held-out examples."""
        return {}


class HeadModel(Protocol):
    """A loaded classifier, as encoder and head."""

    @property
    def encoder(self) -> Any:
        """The encoder's module, on the processor in float32; its last hidden states are what the head reads."""

    @property
    def tokenizer(self) -> Any:
        """The encoder's fast tokenizer."""

    def head_on(self, device: "torch.device") -> "Callable[[torch.Tensor], torch.Tensor]":
        """The head on a device: scores_B out of the encoder's last hidden states_BTH, float32."""


class HeadScorer(Scorer):
    """A scorer that reads its score off an encoder's hidden states, so that it can ride on the embedding's own pass.

    Its score of a batch is ``batch.head_scores_N[name]`` where the embedding computed it, else its own pass.

    Attributes:
        max_tokens: Tokens a document is cut to.
        dtype: Arithmetic of the encoder: ``float32`` or ``bfloat16``.
    """

    @property
    @abc.abstractmethod
    def max_tokens(self) -> int: ...

    @property
    @abc.abstractmethod
    def dtype(self) -> str: ...

    @abc.abstractmethod
    def load(self) -> HeadModel:
        """The classifier, on the processor.

        Raises:
            ConfigurationError: it cannot be loaded, or is not of a kind that this scorer reads.
        """
