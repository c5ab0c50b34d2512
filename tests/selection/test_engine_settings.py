"""What the engine's one function takes beside arrays: a policy's own settings, and a function as metric."""

import numpy as np
import pytest
import torch

from datamask_pipeline import select_documents
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.config import SelectionConfig


def far_apart(embeddings_ND: torch.Tensor, masks_GN: torch.Tensor) -> torch.Tensor:
    return torch.stack([-embeddings_ND[mask_N].mean(0).norm() for mask_N in masks_GN])


def test_a_function_is_a_metric(clustered) -> None:
    learn = {"policy": "policy_gradient", "num_epochs": 60, "num_rollouts": 16, "partial": 1.0, "lamb": 0.0}
    found = select_documents(*clustered, diversity=far_apart, **learn)
    assert found.objective.value > found.objective.random + 0.1
    assert found.record["config"]["diversity"] == "far_apart"
    assert found.record["diversity_metrics"]["far_apart"]["class"].endswith("FunctionMetric")
    mixed = select_documents(*clustered, diversity=[(far_apart, 1.0), ("Pair_simi", 3.0)], **learn)
    assert mixed.record["diversity"] == {"far_apart": 0.25, "Pair_simi": 0.75}


@pytest.mark.parametrize("given", [lambda rows: 1.0, type, 3, [("Pair_simi",)]])
def test_what_is_no_metric_is_one_clear_line(given, clustered) -> None:
    with pytest.raises(ConfigurationError, match="diversity"):
        select_documents(*clustered, diversity=given)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"policy": "random", "num_epochs": 9}, "num_epochs: .*'random'.*policy policy_gradient"),
        ({"num_step": 9}, "num_step: .*did you mean 'num_steps'"),
        ({"diversity_options": {"Facility": {}}}, "diversity_options.Facility: .*not used"),
    ],
)
def test_a_setting_that_nothing_reads_is_refused(settings, told, clustered) -> None:
    with pytest.raises(ConfigurationError, match=told):
        select_documents(*clustered, **settings)


def test_a_budget_of_nothing_is_told_with_its_setting(clustered) -> None:
    with pytest.raises(ConfigurationError, match=r"budget is 0 of \d+ .*raise `ratio`, which is 0\.0001"):
        select_documents(*clustered, ratio=0.0001)


def test_settings_without_a_policys_own_take_its_defaults(clustered) -> None:
    plain = select_documents(*clustered, config=SelectionConfig(ratio=0.2))
    own = select_documents(*clustered, config=SelectionConfig.of({"ratio": 0.2, "num_steps": 40}))
    np.testing.assert_array_equal(plain.mask, own.mask)
    assert own.record["config"]["num_steps"] == 40
