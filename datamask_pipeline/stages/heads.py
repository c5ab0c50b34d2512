"""Scorers that read their score off the embedding's own forward pass. Knows encoders and no scorer.

A head may ride along only where its encoder is the embedding's: same layers and arithmetic, same weights bit by
bit, same tokenizer, same cut. That is checked, never assumed.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.families import SCORERS
from datamask_pipeline.quality.base import HeadScorer

if TYPE_CHECKING:
    from datamask_pipeline.embedding.encoder import Encoder, Head

#: What a BERT encoder computes beside its weights, by the names in its configuration.
ARCHITECTURE = (
    "model_type",
    "num_hidden_layers",
    "num_attention_heads",
    "hidden_act",
    "layer_norm_eps",
    "position_embedding_type",
    "is_decoder",
)


def make_heads(names: Sequence[str], options: Mapping[str, dict[str, Any]]) -> dict[str, HeadScorer]:
    """The scorers named, not yet loaded.

    Raises:
        UnknownNameError: no scorer has that name, or options are given for one that is not named.
        ConfigurationError: a scorer has no head on an encoder, or a wrong option.
    """
    found: dict[str, HeadScorer] = {}
    for name, scorer in zip(
        names, SCORERS.make_each(names, options, "embed.head_options", "embed.heads"), strict=True
    ):
        if not isinstance(scorer, HeadScorer):
            raise ConfigurationError(
                f"quality scorer {name!r} has no head on an encoder; score it in the score stage"
            )
        found[name] = scorer
    return found


def attach(encoder: "Encoder", scorers: Mapping[str, HeadScorer]) -> "Encoder":
    """The encoder with the scorers' heads, each checked to belong on it.

    Raises:
        ConfigurationError: layers, their arithmetic, weights, tokenizer, prefix or cut differ.
    """
    heads = {name: _checked(encoder, scorer) for name, scorer in scorers.items()}
    return dataclasses.replace(encoder, heads=heads)


def _checked(encoder: "Encoder", scorer: HeadScorer) -> "Head":
    import torch

    remedy = f"score {scorer.name!r} in the score stage, in a forward pass of its own"
    if encoder.spec.prefix or encoder.max_tokens != scorer.max_tokens:
        raise ConfigurationError(
            f"the embedding reads {encoder.max_tokens} tokens with prefix {encoder.spec.prefix!r}, "
            f"{scorer.name!r} {scorer.max_tokens} without; set them alike, or {remedy}"
        )
    model = scorer.load()
    if _tokenizer_rules(encoder.tokenizer) != _tokenizer_rules(model.tokenizer):
        raise ConfigurationError(f"the tokenizers of the embedding and {scorer.name!r} differ; {remedy}")
    for setting in ARCHITECTURE:
        mine, its = (
            getattr(config, setting, None) for config in (_architecture(encoder), model.encoder.config)
        )
        if mine != its:
            raise ConfigurationError(
                f"the encoders of the embedding and {scorer.name!r} differ: {setting} is {mine!r} and {its!r}; {remedy}"
            )
    # The pooler follows the hidden states that a head reads.
    ours = {name: found for name, found in encoder.weights().items() if not name.startswith("pooler.")}
    theirs = model.encoder.state_dict()
    if further := sorted(ours.keys() ^ theirs.keys()):
        raise ConfigurationError(
            f"the encoders of the embedding and {scorer.name!r} differ: only one of them has {further[0]!r}; {remedy}"
        )
    precision = getattr(torch, scorer.dtype)
    for name, stored in theirs.items():
        # One at a time: another encoder in memory would cost more time than the comparison.
        tensor = stored.to(encoder.device, precision if stored.is_floating_point() else stored.dtype)
        if ours[name].dtype != tensor.dtype or not torch.equal(ours[name], tensor):
            raise ConfigurationError(
                f"the encoders of the embedding and {scorer.name!r} differ, first in tensor {name!r}; {remedy}"
            )
    return model.head_on(encoder.device)


def _architecture(encoder: "Encoder") -> Any:
    """Configuration of the embedding's transformer."""
    return encoder._model[0].model.config


def _tokenizer_rules(tokenizer: Any) -> dict[str, Any]:
    """All of a fast tokenizer but how it pads and cuts, which each call says itself."""
    rules: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    return {name: value for name, value in rules.items() if name not in ("padding", "truncation")}
