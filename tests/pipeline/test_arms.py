"""What an arm's settings mean: its own must be read, inherited ones may be of use to other arms only."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import PipelineConfig, load_config
from datamask_pipeline.pipeline.config import changed

ARMS = {
    "chance": {"policy": "random"},
    "best": {"policy": "quality_topk"},
    "paper": {"policy": "policy_gradient"},
    "ours": {"policy": "datamask"},
}


def configured(tmp_path: Path, select: dict[str, Any], arms: dict[str, Any]) -> PipelineConfig:
    path = tmp_path / "my.yaml"
    path.write_text(yaml.safe_dump({"select": select, "arms": arms}))
    return load_config(str(path))


def fingerprinted(config: PipelineConfig) -> dict[str, dict[str, Any]]:
    return {arm: config.select_config(arm).result_config() for arm in config.arms}


@pytest.mark.parametrize(
    ("select", "arms", "told"),
    [
        (
            {},
            {"x": {"policy": "random", "num_epochs": 9}},
            "arms.x.num_epochs: .*'random'.*policy policy_gradient",
        ),
        (
            {},
            {"x": {"policy": "quality_topk", "gap_tolerance": 0.1}},
            "arms.x.gap_tolerance: .*policy datamask",
        ),
        (
            {},
            {"x": {"policy": "datamask", "num_epochs": 9}},
            "arms.x.num_epochs: .*'datamask'.*policy_gradient",
        ),
        (
            {},
            {"x": {"policy": "policy_gradient", "num_epoch": 9}},
            "arms.x.num_epoch: .*did you mean 'num_epochs'",
        ),
        (
            {},
            {"x": {"policy": "policy_gradient", "estimator": "expected", "num_rollouts": 9}},
            "arms.x.num_rollouts: .*estimator group_relative",
        ),
        ({}, {"x": {"policy": "policy_gradient", "num_epochs": 0}}, "arms.x.num_epochs: .*greater.*given: 0"),
        (
            {},
            {"x": {"policy": "radnom"}},
            "arms.x.policy: unknown selection policy 'radnom' .did you mean 'random'",
        ),
        (
            {},
            {"x": {"policy": "policy_gradient", "estimator": "expcted"}},
            "arms.x.estimator: unknown gradient estimator 'expcted' .did you mean 'expected'",
        ),
        (
            {"num_epochs": 9},
            {"x": {"policy": "random"}},
            "select.num_epochs: no arm reads.*policy policy_gradient",
        ),
        ({"lmab": 0.3}, {"x": {"policy": "random"}}, "select.lmab: no arm reads.*did you mean 'lamb'"),
        ({"lamb": 3}, {"x": {"policy": "random"}}, "select.lamb: .*less than or equal to 1 .given: 3"),
        (
            {"num_epochs": 0},
            {"x": {"policy": "random"}, "y": {"policy": "policy_gradient"}},
            "select.num_epochs: .*greater",
        ),
        (
            {"diversity_options": {"Facility": {}}},
            {"x": {"policy": "random"}},
            "select.diversity_options.Facility: no arm",
        ),
    ],
)
def test_what_nothing_reads_is_refused_with_its_path(
    select: dict[str, Any], arms: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        configured(tmp_path, select, arms)


def test_what_an_arm_inherits_and_does_not_read_is_not_in_its_fingerprint(tmp_path: Path) -> None:
    plain = fingerprinted(configured(tmp_path, {}, ARMS))
    epochs = fingerprinted(configured(tmp_path, {"num_epochs": 9}, ARMS))
    assert {arm for arm in ARMS if plain[arm] != epochs[arm]} == {"paper"}
    gap = fingerprinted(configured(tmp_path, {"gap_tolerance": 0.1}, ARMS))
    assert {arm for arm in ARMS if plain[arm] != gap[arm]} == {"ours"}
    # What the record says of every arm: its objective and its marginals.
    lamb = fingerprinted(configured(tmp_path, {"lamb": 0.3}, ARMS))
    assert {arm for arm in ARMS if plain[arm] != lamb[arm]} == set(ARMS)


def test_options_of_a_metric_go_to_the_arms_that_use_it(tmp_path: Path) -> None:
    config = configured(
        tmp_path,
        {"diversity": "Facility", "diversity_options": {"Facility": {"num_landmarks": 9}}},
        {"x": {"policy": "random"}, "y": {"policy": "random", "diversity": "Pair_simi"}},
    )
    assert config.select_config("x").diversity_options == {"Facility": {"num_landmarks": 9}}
    assert config.select_config("y").diversity_options == {}


def test_where_and_how_to_compute_is_in_no_fingerprint(tmp_path: Path) -> None:
    plain = fingerprinted(configured(tmp_path, {}, ARMS))
    elsewhere = {"device": "cpu", "num_workers": 7, "checkpoint_seconds": 1.0}
    assert fingerprinted(configured(tmp_path, elsewhere, ARMS)) == plain
    half, full = (
        fingerprinted(configured(tmp_path, {"dtype": dtype}, ARMS)) for dtype in ("bfloat16", "float32")
    )
    assert all(half[arm] != full[arm] for arm in ARMS)


def test_another_policy_for_one_run_leaves_behind_what_it_does_not_read(tmp_path: Path) -> None:
    config = configured(tmp_path, {}, {"x": {"policy": "policy_gradient", "num_epochs": 9, "ratio": 0.3}})
    other = changed(config.select_config("x"), {"policy": "random"})
    assert (other.policy, other.ratio) == ("random", 0.3)
    assert "num_epochs" not in type(other).model_fields


def test_a_pretraining_setting_is_told_where_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    for given, told in (
        ({"pretrain": {"num_layer": 3}}, r"pretrain\.num_layer: unknown setting .did you mean 'num_layers'"),
        ({"architectures": {"wide": {"hidden_size": -1}}}, r"architectures\.wide\.hidden_size: .*given: -1"),
    ):
        path.write_text(yaml.safe_dump(given))
        with pytest.raises(ConfigurationError, match=told):
            load_config(str(path))
