"""Architectures by name: a configuration in, an untrained model out.

Knows no data and no training. A new architecture is one entry of `_BUILDERS`.
"""

from collections.abc import Callable
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
)

from datamask_pipeline.pretraining.config import PretrainConfig


def build_model(config: PretrainConfig, *, vocab_size: int, end_of_text: int) -> PreTrainedModel:
    """A float32 model with weights drawn from the configuration's seed; the global generator is left alone.

    Args:
        config: Architecture, sizes and seed.
        vocab_size: Entries of the tokenizer actually trained.
        end_of_text: Its id of the end of a text, which also pads.
    """
    shared = {
        "vocab_size": vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads or config.num_heads,
        "max_position_embeddings": config.sequence_length,
        "bos_token_id": end_of_text,
        "eos_token_id": end_of_text,
        "pad_token_id": end_of_text,
        "tie_word_embeddings": config.tie_embeddings,
        "use_cache": False,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return _BUILDERS[config.architecture](config, shared)


def training_arguments(config: PretrainConfig) -> dict[str, Any]:
    """What a forward pass in training asks for besides the batch.

    The loss that balances experts is asked for here and not in the model's own configuration, as generation, which
    reads a cache, cannot compute it.
    """
    return {"output_router_logits": True} if config.architecture == "moe" else {}


def scale_router_loss(model: PreTrainedModel, config: PretrainConfig) -> None:
    """Make the loss that balances experts weigh the same however a step's batch is divided.

    The trainer divides the loss of tokens by all tokens of a step and adds up the parts; this one it would add up
    undivided. The model's configuration, which is published, stays as it is.
    """
    if config.architecture == "moe":
        model.router_aux_loss_coef /= config.accumulation_steps * config.processes


def count_parameters(model: PreTrainedModel) -> int:
    """Trainable numbers, each tied one once."""
    return sum(parameter.numel() for parameter in model.parameters())


def count_active_parameters(model: PreTrainedModel, config: PretrainConfig) -> int:
    """Those of them that one token goes through; all of a dense model."""
    return count_parameters(model) - (config.block_parameters - config.active_block_parameters)


def _dense(config: PretrainConfig, shared: dict[str, Any]) -> PreTrainedModel:
    """Llama: pre-norm RMSNorm, rotary positions, SwiGLU."""
    return LlamaForCausalLM(LlamaConfig(**shared))


def _moe(config: PretrainConfig, shared: dict[str, Any]) -> PreTrainedModel:
    """Mixtral: Llama whose feed-forward blocks are experts, chosen per token, with a load-balancing loss."""
    return MixtralForCausalLM(
        MixtralConfig(
            **shared,
            num_local_experts=config.num_experts,
            num_experts_per_tok=config.experts_per_token,
            sliding_window=None,
        )
    )


_BUILDERS: dict[str, Callable[[PretrainConfig, dict[str, Any]], PreTrainedModel]] = {
    "dense": _dense,
    "moe": _moe,
}
