import pytest
import torch

from datamask_pipeline.pipeline.config import config_model
from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.pretraining.model import build_model, count_active_parameters, count_parameters
from datamask_pipeline.pretraining.presets import PRESETS


@pytest.mark.parametrize(
    ("preset", "vocab_size", "millions", "active_millions"),
    [
        ("smoke", 4_096, 0.36, 0.36),
        ("proxy", 4_096, 3.0, 3.0),
        ("paper-dense", 50_304, 1_520, 1_520),
        ("paper-moe", 50_304, 7_066, 1_630),
    ],
)
def test_a_preset_has_the_size_it_is_called_by(
    preset: str, vocab_size: int, millions: float, active_millions: float
) -> None:
    config = PretrainConfig(preset=preset)
    with torch.device("meta"):
        model = build_model(config, vocab_size=vocab_size, end_of_text=0)
    assert count_parameters(model) == vocab_size * config.hidden_size + config.block_parameters
    assert count_parameters(model) / 1e6 == pytest.approx(millions, rel=0.01)
    assert count_active_parameters(model, config) / 1e6 == pytest.approx(active_millions, rel=0.01)


def test_parameters_are_counted_whole_however_many_heads_share_keys() -> None:
    config = PretrainConfig(hidden_size=98, num_heads=49, num_kv_heads=1, num_layers=2, intermediate_size=64)
    with torch.device("meta"):
        model = build_model(config, vocab_size=100, end_of_text=0)
    assert count_parameters(model) == 100 * 98 + config.block_parameters


def test_what_is_given_beside_a_preset_wins_and_the_same_values_are_the_same_model() -> None:
    smoke = PretrainConfig(preset="smoke", num_layers=3)
    assert (smoke.hidden_size, smoke.num_layers) == (64, 3)
    written = PretrainConfig(**{**PRESETS["smoke"], "num_layers": 3})
    assert smoke.result_config() == written.result_config()


def test_an_architectures_own_preset_comes_before_what_it_inherits() -> None:
    config = config_model()(
        name="chain",
        pretrain={"hidden_size": 32, "learning_rate": 0.01},
        architectures={"small": {"preset": "smoke", "num_layers": 1}, "plain": {}},
    )
    small, plain = (config.pretrain_config(f"random.{name}.seed0") for name in ("small", "plain"))
    assert (small.hidden_size, small.num_layers, small.learning_rate) == (64, 1, 0.01)
    assert (plain.hidden_size, plain.num_layers) == (32, 3)


def test_an_unknown_preset_is_refused_where_no_architecture_inherits_it() -> None:
    with pytest.raises(ValueError, match=r"pretrain\.preset: unknown preset 'smok' \(did you mean 'smoke'"):
        config_model()(
            name="chain", pretrain={"preset": "smok"}, architectures={"small": {"preset": "smoke"}}
        )


@pytest.mark.parametrize("preset", ["proxi", ["smoke"], 3])
def test_an_unknown_preset_is_refused(preset: object) -> None:
    with pytest.raises(ValueError, match="'smoke', 'proxy', 'paper-dense' or 'paper-moe'"):
        PretrainConfig(preset=preset)  # type: ignore[arg-type]
