"""Refuses, before any document is read, a model that this machine cannot train. Builds no model."""

import os
from typing import Final

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.hardware import num_cores, present_device
from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.pretraining.presets import PRESETS

#: What training keeps of each parameter in float32: weight, gradient and Adam's two moments.
BYTES_PER_PARAMETER: Final = 16


def check(config: PretrainConfig) -> None:
    """Check device, arithmetic and size; activations and embeddings come on top of the size.

    Raises:
        ConfigurationError: The device is not there, does not multiply in `dtype`, or has too little memory.
    """
    if config.device == "cpu" and config.processes > num_cores():
        raise ConfigurationError(
            f"pretrain.processes {config.processes}: this machine has {num_cores()} cores; lower it"
        )
    memory = _cuda_memory(config) if config.device == "cuda" else _machine_memory()
    needed = BYTES_PER_PARAMETER * config.block_parameters
    if needed > memory:
        raise ConfigurationError(
            f"the model's {config.block_parameters:,} parameters take {needed / 1e9:,.1f} GB in training, the device has "
            f"{memory / 1e9:,.1f} GB; take another preset, or lower hidden_size, intermediate_size, num_layers or "
            "num_experts"
        )


def _cuda_memory(config: PretrainConfig) -> int:
    import torch

    try:
        device = present_device(config.device)
    except ConfigurationError as error:
        by_preset = config.preset is not None and PRESETS[config.preset].get("device") == config.device
        asked = f", which preset {config.preset!r} asks for" if by_preset else ""
        raise ConfigurationError(f"pretrain.device{asked}: {error}") from error
    if config.processes > torch.cuda.device_count():
        raise ConfigurationError(
            f"pretrain.processes {config.processes}: each takes a CUDA device, and this machine has "
            f"{torch.cuda.device_count()}; lower it"
        )
    if config.dtype == "bfloat16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise ConfigurationError(
            f"{torch.cuda.get_device_name(device)} does not multiply in bfloat16; set pretrain.dtype: float32"
        )
    return int(torch.cuda.get_device_properties(device).total_memory)


def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
