"""Which devices, arithmetic and batches suit this machine. Knows no model."""

import functools
from pathlib import Path
from typing import Final

from datamask_pipeline.errors import ConfigurationError

#: Tokens of a batch, padding included. On a processor the widest activations of a base model must stay below
#: the 32 MiB from which the C library maps and clears new pages for every tensor.
CPU_BATCH_TOKENS: Final = 2_048
ACCELERATOR_BATCH_TOKENS: Final = 16_384


def resolve_devices(device: str | tuple[str, ...]) -> tuple[str, ...]:
    """One entry a worker.

    Args:
        device: ``auto``: every accelerator, else the processor; ``cpu``: a worker for each core that torch may
            use; a tuple is taken as it stands.

    Raises:
        ConfigurationError: no device, or processors beside accelerators, whose results differ in the last bits.
    """
    import torch

    if device == "auto":
        device = tuple(f"cuda:{index}" for index in range(torch.cuda.device_count())) or "cpu"
    if device == "cpu":
        return ("cpu",) * torch.get_num_threads()
    named = (device,) if isinstance(device, str) else device
    if not named or len({name.split(":")[0] for name in named}) > 1:
        raise ConfigurationError(f"device {list(named)} must name devices of one kind, e.g. [cuda:0, cuda:1]")
    return named


def device_kind(device: str | tuple[str, ...]) -> str:
    """``cpu`` or ``cuda``: what the arithmetic and the batches are chosen by."""
    first = device if isinstance(device, str) else device[0]
    return first.split(":")[0] if first != "auto" else "cuda" if _has_cuda() else "cpu"


def resolve_dtype(dtype: str, device: str | tuple[str, ...]) -> str:
    """``auto`` becomes ``bfloat16`` where it is multiplied natively, else ``float32``."""
    if dtype != "auto":
        return dtype
    return "bfloat16" if device_kind(device) == "cuda" or _cpu_multiplies_bfloat16() else "float32"


def resolve_batch_tokens(batch_tokens: int | None, device: str | tuple[str, ...]) -> int:
    """``None`` becomes what suits the device."""
    suited = CPU_BATCH_TOKENS if device_kind(device) == "cpu" else ACCELERATOR_BATCH_TOKENS
    return batch_tokens or suited


@functools.cache
def _cpu_multiplies_bfloat16() -> bool:
    """Whether the processor has matrix or vector instructions for bfloat16; elsewhere it is emulated, slowly."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return False
    flags = info.read_text(errors="replace")
    return "amx_bf16" in flags or "avx512_bf16" in flags or " bf16 " in flags


def _has_cuda() -> bool:
    # Asking the driver costs the import of torch; the device node does not.
    if not Path("/dev/nvidia0").exists():
        return False
    import torch

    return torch.cuda.is_available()
