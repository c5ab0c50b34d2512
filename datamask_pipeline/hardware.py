"""Which devices, threads, arithmetic and batches suit this machine. Knows no model."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from datamask_pipeline.errors import ConfigurationError

if TYPE_CHECKING:
    import torch

#: Tokens of a batch, padding included. On a processor the widest activations of a base model must stay below
#: the 32 MiB from which the C library maps and clears new pages for every tensor.
CPU_BATCH_TOKENS: Final = 2_048
ACCELERATOR_BATCH_TOKENS: Final = 65_536
#: Of one accelerator: while it computes for one, the others make their batches ready.
WORKERS_OF_ACCELERATOR: Final = 3

#: Parameters of mallopt(3).
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_MMAP_MAX: Final = -4
_KEEP: Final = {_TRIM_THRESHOLD: 2**31 - 1, _MMAP_MAX: 0}
#: What glibc's own thresholds grow to where large blocks come and go.
_GIVE_BACK: Final = {_TRIM_THRESHOLD: 2**26, _MMAP_THRESHOLD: 2**25, _MMAP_MAX: 65_536}


def num_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resolve_devices(device: str | tuple[str, ...]) -> tuple[str, ...]:
    """One entry a worker.

    Args:
        device: ``auto``: every accelerator, else the processor; ``cpu``: a worker for each core that torch may
            use; an accelerator's name: workers that keep it busy; a tuple is taken as it stands.

    Raises:
        ConfigurationError: no device, or processors beside accelerators, whose results differ in the last bits.
    """
    import torch

    if device == "auto":
        found = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        device = tuple(name for name in found for _ in range(WORKERS_OF_ACCELERATOR)) or "cpu"
    if device == "cpu":
        return ("cpu",) * torch.get_num_threads()
    named = (device,) * WORKERS_OF_ACCELERATOR if isinstance(device, str) else device
    if not named or len({name.split(":")[0] for name in named}) > 1:
        raise ConfigurationError(f"device {list(named)} must name devices of one kind, e.g. [cuda:0, cuda:1]")
    return named


def present_device(name: str) -> torch.device:
    """The device of that name.

    Raises:
        ConfigurationError: no such device, or not on this machine.
    """
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigurationError(
            f"there is no device {name!r}; use cpu, cuda, or cuda:0 and so on"
        ) from error
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ConfigurationError(
                f"device {name!r} is not available: this machine has no CUDA device; set `device: cpu`"
            )
        if (device.index or 0) >= torch.cuda.device_count():
            raise ConfigurationError(
                f"device {name!r} is not available: there are {torch.cuda.device_count()} CUDA devices; set `device: cpu`"
            )
    elif device.type != "cpu":
        raise ConfigurationError(f"device {name!r} is not supported; use cpu or cuda")
    return device


def device_of_place(name: str, place: int) -> torch.device:
    """The device for one of several processes: ``cuda`` without a number is dealt out among those of this machine.

    Args:
        name: As for `present_device`.
        place: Which of the processes, from 0.

    Raises:
        ConfigurationError: as `present_device`.
    """
    import torch

    device = present_device(name)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", place % torch.cuda.device_count())
    return device


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Inside it, a torch operation takes so many threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def freed_pages_kept() -> Iterator[None]:
    """Inside it, the C library keeps the pages of freed tensors for the next ones, where it is glibc.

    Else it gives large ones back and has them cleared anew each time: on a processor a tenth of a training step and a
    quarter of asking a small network. No result depends on it. Afterwards free pages are given back.

    Source: mallopt(3).
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        yield
        return
    for parameter, value in _KEEP.items():
        library.mallopt(parameter, value)
    try:
        yield
    finally:
        for parameter, value in _GIVE_BACK.items():
            library.mallopt(parameter, value)
        give_free_pages_back()


def give_free_pages_back() -> None:
    """What this process freed, the system has again: between two pieces of long work, of which each frees what it took.

    The C library, where it is glibc, and Arrow keep freed pages otherwise, in pieces that what comes next does not fit in.
    """
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


@contextmanager
def one_thread_each(
    num_workers: int, device_of: Callable[[], torch.device | None] = lambda: None
) -> Iterator[ThreadPoolExecutor]:
    """A pool of workers. While it is open, every torch operation of this process takes one thread.

    What a worker computes then depends on its item alone, not on the number of cores.

    Args:
        num_workers: Threads.
        device_of: Where they compute, asked when a thread begins; none is the processor.
    """
    import torch

    def begin() -> None:
        torch.set_num_threads(1)  # threads do not inherit it
        device = device_of()
        if device is not None and device.type != "cpu":
            # A library that finds no context in the thread that first calls it warns, and makes one.
            torch.zeros((), device=device)

    with torch_threads(1):
        pool = ThreadPoolExecutor(num_workers, initializer=begin)
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


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
