"""How fast a model was trained, and what share of the device's arithmetic that is. Knows no data and no trainer."""

import functools
import time
from dataclasses import dataclass
from typing import Final

import torch

from datamask_pipeline.hardware import torch_threads
from datamask_pipeline.pretraining.config import PretrainConfig

#: Rows of the square matrices whose product says what a device can do: large enough for its full rate.
_PRODUCT_ROWS: Final = {"cpu": 1_536, "cuda": 8_192}
_PRODUCTS: Final = 5
#: Seconds of a product beyond which none of larger matrices is timed, and beyond twice as many none at all: many
#: processors multiply slowly in bfloat16.
_LONG: Final = 0.1


@dataclass(frozen=True)
class Speed:
    """What the last process of a run did by the clock, without its first step.

    `utilisation` is the training's arithmetic (`flop_per_token`, and the last matrix) over that of plain matrix
    products in the same arithmetic on the same device, which were timed afterwards: neither depends on a table of devices.
    """

    tokens_per_second: float
    utilisation: float


def speed_of(config: PretrainConfig, *, vocab_size: int, tokens: int, seconds: float) -> Speed | None:
    """The speed of `tokens` trained in `seconds`; None where no step was timed."""
    if not tokens or seconds <= 0:
        return None
    flop = config.flop_per_token + 6 * config.hidden_size * vocab_size
    rate = tokens / seconds
    products = product_rate(config.device, config.dtype, config.threads)
    return Speed(rate, rate * flop / (config.processes * products))


@functools.cache
def product_rate(device: str, dtype: str, threads: int) -> float:
    """Floating-point operations a second of plain matrix products on one of the run's devices: the best of a few.

    Once in a process, however many models it trains.
    """
    rows = _PRODUCT_ROWS[device] // 8
    with torch_threads(threads):
        while (seconds := _product_seconds(rows, device, dtype)) < _LONG and rows < _PRODUCT_ROWS[device]:
            rows *= 2
    return 2 * rows**3 / seconds


def _product_seconds(rows: int, device: str, dtype: str) -> float:
    # Products of equal numbers run faster on some devices.
    left = torch.randn(rows, rows, device=device).to(getattr(torch, dtype))
    best = float("inf")
    for _ in range(_PRODUCTS):
        begun = time.perf_counter()
        left @ left
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begun)
        if best > 2 * _LONG:
            break
    return best
