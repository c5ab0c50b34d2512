"""Models by name: sizes and schedule that belong together, as plain values. Knows no torch and no files.

The paper states 1.5 B dense parameters and 7 B with 10 experts, and neither shapes nor schedule. What stands here
beside these numbers is assumed: Llama's proportions, 20 tokens a dense parameter, and two routed experts a token,
as one would leave the router without a gradient (`experts_per_token`).
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

Preset = Literal["smoke", "proxy", "paper-dense", "paper-moe"]

_LARGE: Final[Mapping[str, Any]] = {
    "hidden_size": 2048,
    "num_heads": 16,
    "sequence_length": 2048,
    "batch_size": 512,
    "micro_batch_size": 8,
    "token_budget": 30_000_000_000,
    "learning_rate": 3e-4,
    "warmup_ratio": 0.01,
    "device": "cuda",
    "dtype": "bfloat16",
    "log_every_steps": 10,
    "checkpoint_every_steps": 1_000,
}

#: What each preset sets; a setting that is given beside it wins.
PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "smoke": {
        "hidden_size": 64,
        "num_layers": 2,
        "num_heads": 2,
        "intermediate_size": 160,
        "sequence_length": 128,
        "batch_size": 8,
        "token_budget": 50_000,
    },
    "proxy": {
        "hidden_size": 192,
        "num_layers": 5,
        "num_heads": 6,
        "intermediate_size": 512,
        "sequence_length": 256,
        "batch_size": 16,
        "token_budget": 3_000_000,
        "checkpoint_every_steps": 100,
    },
    "paper-dense": {**_LARGE, "num_layers": 28, "intermediate_size": 5504},
    "paper-moe": {
        **_LARGE,
        "architecture": "moe",
        "num_layers": 16,
        "num_kv_heads": 4,
        "intermediate_size": 6912,
        "num_experts": 10,
        "experts_per_token": 2,
    },
}


def filled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with what their preset says of those that are not given; an unknown preset changes nothing."""
    name = settings.get("preset")
    return {**(PRESETS.get(name, {}) if isinstance(name, str) else {}), **settings}


def joined(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of one architecture over those that all start from: its own preset comes before what is inherited."""
    return {**filled(base), **filled(own)}
