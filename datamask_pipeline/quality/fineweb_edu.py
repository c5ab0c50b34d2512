"""FineWeb-Edu's classifier: educational value from 0 to 5 by a regression head on an arctic-embed encoder.

Source: Penedo et al. 2024 (FineWeb), section 4; model ``HuggingFaceFW/fineweb-edu-classifier``. FineWeb-Edu
keeps documents whose score, clipped to 0..5 and rounded, is at least 3; the score itself is not clipped. The
published scores came from bfloat16. Direction: higher is better. Cost: one forward pass of a base encoder over
512 tokens, or next to nothing where the embedding pass ran the same encoder (``EduModel.head_on``).

Shape suffixes: B documents of a batch, T tokens, H hidden width, N documents.
"""

import copy
import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pydantic

from datamask_pipeline.embedding.config import model_identity
from datamask_pipeline.embedding.presets import EncoderSpec
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.hardware import present_device, resolve_batch_tokens, resolve_devices
from datamask_pipeline.hub import check_pinned
from datamask_pipeline.quality.base import HeadScorer, ScoreBatch, Scores
from datamask_pipeline.settings import Settings, execution_field

if TYPE_CHECKING:
    import torch

    Head = Callable[[torch.Tensor], torch.Tensor]

REPOSITORY = "HuggingFaceFW/fineweb-edu-classifier"
MAX_TOKENS = 512
#: What the configuration of its encoder calls it.
ENCODER = "bert"

#: Raised when the same text would be put to the model in another form. The text goes in as it is.
NORMALISER = "plain-1"


class FineWebEduConfig(Settings):
    """Where the classifier comes from, and its arithmetic."""

    model: str = pydantic.Field(
        REPOSITORY, description="The classifier: hub name (with `revision`) or directory."
    )
    revision: str | None = pydantic.Field(None, description="Commit hash of the hub repository.")
    dtype: Literal["float32", "bfloat16"] = pydantic.Field(
        "bfloat16", description="Arithmetic of the encoder; the head is always float32."
    )
    max_tokens: int = pydantic.Field(MAX_TOKENS, ge=8, description="Tokens a document is cut to.")
    batch_tokens: int | None = pydantic.Field(
        None, ge=64, description="Tokens of a batch, padding included; null takes what suits the device."
    )
    device: str = execution_field("auto", description="`cpu`, `cuda`, or auto.")


@dataclasses.dataclass(frozen=True)
class EduModel:
    """The classifier in float32, as encoder and head.

    Attributes:
        encoder: Of a module ``bert``, without its pooler.
        tokenizer: The encoder's.
        pooler: First half of the head.
        classifier: Second half of the head.
    """

    encoder: Any
    tokenizer: Any
    pooler: Any
    classifier: Any

    def head_on(self, device: "torch.device") -> "Head":
        """The head on a device: scores_B out of the encoder's last hidden states_BTH, float32."""
        pooler, classifier = (copy.deepcopy(part).to(device) for part in (self.pooler, self.classifier))

        def head(states_BTH: "torch.Tensor") -> "torch.Tensor":
            scores_B1: torch.Tensor = classifier(pooler(states_BTH))
            return scores_B1[:, 0]

        return head


class FineWebEduScorer(HeadScorer):
    """The regression head's number, unclipped."""

    name = "fineweb_edu"
    Config = FineWebEduConfig
    told_by_revision = True
    batch_dependent = True
    scale = (None, None)

    def __init__(self, config: FineWebEduConfig) -> None:
        self.config = config
        self._is_directory = Path(config.model).is_dir()
        if self._is_directory:
            self.model, revision = model_identity(EncoderSpec(model=config.model))
        elif config.revision:
            check_pinned(config.model, config.revision)
            self.model, revision = config.model, config.revision
        else:
            raise ConfigurationError(
                f"the model of fineweb_edu, {config.model!r}, is no directory; correct the path, or pin `revision` to a "
                "commit of that repository on the hub"
            )
        self.revision = f"{revision}+{NORMALISER}+{config.dtype}+{config.max_tokens}"

    def check(self) -> None:
        """Refuse what loading the classifier would refuse, as far as it shows without reading a weight.

        Raises:
            ConfigurationError: the device is not there, a directory is another model's, or has a revision, which none reads.
        """
        if self.config.device not in ("auto", "cpu"):
            present_device(self.config.device)
        if self._is_directory:
            if self.config.revision:
                raise ConfigurationError(
                    f"revision {self.config.revision!r} of fineweb_edu is the commit of a model on the hub, but its model "
                    f"{self.config.model!r} is on this disk; leave `revision` out"
                )
            if (stated := _stated(Path(self.config.model))) is not None:
                self._require_fit(*stated)

    def _require_fit(self, kind: str, num_labels: int, positions: int) -> None:
        where = self.config.model
        if kind != ENCODER or num_labels != 1:
            raise ConfigurationError(
                f"classifier {where!r} is a {kind} model of {num_labels} labels; one regression label on a BERT encoder is "
                "needed"
            )
        if self.config.max_tokens > positions:
            raise ConfigurationError(
                f"max_tokens {self.config.max_tokens} is more than the {positions} positions of classifier {where!r}"
            )

    def identity(self) -> dict[str, Any]:
        batch_tokens = resolve_batch_tokens(self.config.batch_tokens, self.config.device)
        identity = super().identity() | {"batch_tokens": batch_tokens}
        if self._is_directory:
            # The revision is the digest of its content; its name may change.
            del identity["model"]
        return identity

    @property
    def max_tokens(self) -> int:
        return self.config.max_tokens

    @property
    def dtype(self) -> str:
        return self.config.dtype

    def load(self) -> EduModel:
        """The model, on the processor.

        Raises:
            ConfigurationError: it cannot be loaded, or is not one regression label on a BERT encoder.
        """
        from safetensors import SafetensorError
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        where = self.config.model
        revision = None if self._is_directory else self.config.revision
        try:
            model, about = AutoModelForSequenceClassification.from_pretrained(
                where, revision=revision, output_loading_info=True
            )
            tokenizer = AutoTokenizer.from_pretrained(where, revision=revision)
        except (OSError, ValueError, SafetensorError) as error:
            raise ConfigurationError(f"classifier {where!r} cannot be loaded: {error}") from error
        if about["missing_keys"]:
            # They would be drawn at random.
            raise ConfigurationError(
                f"classifier {where!r} lacks tensors: {', '.join(sorted(about['missing_keys'])[:3])}"
            )
        about_model = model.config
        self._require_fit(
            about_model.model_type, about_model.num_labels, int(about_model.max_position_embeddings)
        )
        model.eval().requires_grad_(False).float()
        encoder, pooler = model.bert, model.bert.pooler
        encoder.pooler = None
        return EduModel(encoder, tokenizer, pooler, model.classifier)

    def score(self, batch: ScoreBatch) -> Scores:
        known = batch.head_scores_N.get(self.name)
        return Scores(known if known is not None else self._score_texts(batch.texts()))

    @functools.cached_property
    def _ready(self) -> "tuple[Any, Any, Head]":
        """Tokenizer, encoder and head, on the device and in the arithmetic of the settings."""
        import torch

        from datamask_pipeline.embedding.packed import pack_linears

        device = present_device(resolve_devices(self.config.device)[0])
        model = self.load()
        encoder = model.encoder.to(device, getattr(torch, self.config.dtype))
        pack_linears(encoder)
        return model.tokenizer, encoder, model.head_on(device)

    def _score_texts(self, texts: list[str]) -> "np.ndarray[Any, np.dtype[np.float64]]":
        import torch

        from datamask_pipeline.embedding.batching import compose_batches

        tokenizer, encoder, head = self._ready
        batch_tokens = resolve_batch_tokens(self.config.batch_tokens, self.config.device)
        tokens = tokenizer(texts, truncation=True, max_length=self.config.max_tokens)["input_ids"]
        scores_N = np.empty(len(texts), dtype=np.float64)
        device = next(encoder.parameters()).device
        with torch.inference_mode():
            for rows in compose_batches([len(ids) for ids in tokens], batch_tokens):
                padded = tokenizer.pad({"input_ids": [tokens[row] for row in rows]}, return_tensors="pt")
                states_BTH = encoder(**padded.to(device)).last_hidden_state.float()
                scores_N[rows] = head(states_BTH).double().cpu().numpy()
        return scores_N


def _stated(directory: Path) -> tuple[str, int, int] | None:
    """Kind, labels and positions of a classifier, as its directory states them; ``None`` where it does not.

    Only loading the model tells whether that is right.
    """
    try:
        stated = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        labels = len(stated["id2label"]) if "id2label" in stated else int(stated.get("num_labels", 2))
        return str(stated["model_type"]), labels, int(stated["max_position_embeddings"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


SCORER = FineWebEduScorer
