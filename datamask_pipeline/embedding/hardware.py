"""Which device and arithmetic to use here. Knows no model."""

import functools
from pathlib import Path


def resolve_device(device: str) -> str:
    """``auto`` becomes the first accelerator, else ``cpu``."""
    if device != "auto":
        return device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def resolve_dtype(dtype: str, device: str) -> str:
    """``auto`` becomes ``bfloat16`` where it is multiplied natively, else ``float32``."""
    if dtype != "auto":
        return dtype
    if device.startswith("cuda") or (device == "auto" and _has_cuda()):
        return "bfloat16"
    return "bfloat16" if _cpu_multiplies_bfloat16() else "float32"


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
    return Path("/dev/nvidia0").exists() and resolve_device("auto") == "cuda"
