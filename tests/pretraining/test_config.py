import subprocess
import sys

import pytest
from pydantic import ValidationError

from datamask_pipeline.pretraining.config import PretrainConfig


def test_importing_the_configuration_loads_nothing_heavy() -> None:
    code = (
        "import sys, datamask_pipeline.pretraining.config, datamask_pipeline.evaluation.config;"
        "print(sorted({'torch', 'transformers', 'lm_eval', 'datasets', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("budget", "steps"), [(2048, 1), (2049, 2), (300_000, 147)])
def test_the_budget_is_rounded_up_to_whole_steps(budget: int, steps: int) -> None:
    settings = {"batch_size": 8, "sequence_length": 256, "token_budget": budget, "warmup_ratio": 0}
    assert PretrainConfig(**settings).num_steps == steps


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"num_heads": 3}, "num_heads 3"),
        ({"token_budget": 3}, "token_budget\n.*less than one step, which takes 2,048 tokens"),
        ({"token_budget": 2047}, "batch_size 8 times sequence_length 256; raise it, or lower one"),
        ({"batch_size": 10_000}, "token_budget\n.*less than one step, which takes 2,560,000 tokens"),
        ({"token_budget": 2048}, "one step, at which the warm-up has a learning rate of 0"),
        ({"experts_per_token": 5}, "num_experts 4"),
        ({"experts_per_token": 1}, "experts_per_token"),
        ({"num_kv_heads": 3}, "num_kv_heads 3"),
        ({"batch_size": 8, "micro_batch_size": 3}, "multiple of 3"),
        ({"batch_size": 8, "processes": 3}, "processes 3 times"),
        ({"checkpoint_every_steps": 7}, "multiple of log_every_steps"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"warmup_ratio": 1.0}, "warmup_ratio"),
        ({"device": "tpu"}, "device"),
        ({"learing_rate": 0.1}, "learing_rate"),
    ],
)
def test_what_cannot_be_trained_is_refused(settings: dict[str, object], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        PretrainConfig(**settings)  # type: ignore[arg-type]
