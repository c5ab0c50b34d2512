"""What `-s` and an arm change: one setting of what is there, and a budget of one kind for another."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from datamask_pipeline.errors import ConfigurationError, UnknownNameError
from datamask_pipeline.pipeline import PipelineConfig, load_config
from datamask_pipeline.pipeline.config import changed

ARMS = {"random": {"policy": "random"}, "datamask": {"policy": "datamask"}}


def configured(tmp_path: Path, values: dict[str, Any], overrides: dict[str, Any]) -> PipelineConfig:
    path = tmp_path / "my.yaml"
    path.write_text(yaml.safe_dump(values))
    return load_config(str(path), overrides)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        (
            "arms.datamsk.num_steps",
            3,
            r"arms\.datamsk\.num_steps: unknown arm .*mean 'datamask'.*in the file or with",
        ),
        (
            "architectures.dens.num_layers",
            1,
            r"architectures\.dens\.num_layers: unknown architecture .*'dense'",
        ),
        (
            "releases.frist.crawls",
            ["a"],
            r"releases\.frist\.crawls: unknown release 'frist' .did you mean 'first'",
        ),
        (
            "arms.datamsk",
            {"num_steps": 3},
            r"arms\.datamsk: unknown arm .*mean 'datamask'.*with its `policy`",
        ),
        ("arms.datamsk", None, r"arms\.datamsk: unknown arm"),
        ("architectures.dens", {"num_layers": 1}, r"architectures\.dens: .*'dense'.*`architecture`"),
        ("releases.frist", {}, r"releases\.frist: unknown release .*'first'.*with its `crawls`"),
    ],
)
def test_a_misspelt_name_adds_nothing(key: str, value: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=told):
        configured(tmp_path, {"arms": ARMS}, {key: value})


def test_a_whole_arm_is_added(tmp_path: Path) -> None:
    config = configured(
        tmp_path, {"arms": ARMS}, {"arms.top": {"policy": "quality_topk"}, "arms.top.lamb": 1}
    )
    assert config.select_config("top").lamb == 1
    assert {*config.arms} == {"random", "datamask", "top"}


@pytest.mark.parametrize("release", [{"given": "first"}, {"every": "crawl"}, {"crawls": ["a"]}])
def test_a_whole_release_is_added_by_what_makes_it_one(release: dict[str, Any], tmp_path: Path) -> None:
    assert {*configured(tmp_path, {}, {"releases.next": release}).releases} == {"first", "next"}


def test_an_arm_that_is_there_by_default_keeps_its_settings(tmp_path: Path) -> None:
    config = configured(tmp_path, {}, {"arms.random.ratio": 0.2, "architectures.dense.num_layers": 1})
    assert config.arms == {"random": {"policy": "random", "ratio": 0.2}}
    assert config.pretrain_config("random.dense.seed0").num_layers == 1


def test_a_budget_of_another_kind_replaces_the_one_before(tmp_path: Path) -> None:
    def budgets(select: dict[str, Any], arm: dict[str, Any], overrides: dict[str, Any]) -> tuple[str, Any]:
        values = {"select": select, "arms": {"x": {"policy": "random", **arm}}}
        config = configured(tmp_path, values, overrides).select_config("x")
        return config.budget, getattr(config, config.budget)

    by_ratio = {"ratio": 0.3}
    assert budgets(by_ratio, {}, {"select.num_documents": 100}) == ("num_documents", 100)
    assert budgets({"num_tokens": 9}, {}, {"select.ratio": 0.2}) == ("ratio", 0.2)
    assert budgets(by_ratio, {"num_documents": 100}, {}) == ("num_documents", 100)
    assert budgets(by_ratio, {"num_documents": 100}, {"arms.x.num_tokens": 7}) == ("num_tokens", 7)
    assert budgets(by_ratio, {"num_documents": None}, {}) == ("ratio", 0.3)
    assert budgets(by_ratio, {}, {"select.ratio": None}) == ("ratio", 0.1)
    assert budgets(by_ratio, {}, {"select.ratio": None, "select.num_documents": 5}) == ("num_documents", 5)
    arm = configured(tmp_path, {"select": by_ratio, "arms": ARMS}, {}).select_config("random")
    assert changed(arm, {"num_documents": 8}).budget == "num_documents"


@pytest.mark.parametrize(
    ("values", "overrides"),
    [
        ({"select": {"ratio": 0.3, "num_documents": 9}}, {}),
        ({}, {"select.ratio": 0.3, "select.num_documents": 9}),
        ({"arms": {"random": {"policy": "random", "ratio": 0.3, "num_documents": 9}}}, {}),
    ],
)
def test_two_budgets_in_one_place_are_refused_with_the_remedy(
    values: dict[str, Any], overrides: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=r"arms\.random: one budget, not 2: .*others to null"):
        configured(tmp_path, values, overrides)
