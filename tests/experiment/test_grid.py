"""A sweep's arms are every combination of its settings, each once and each under a name of its own."""

import pytest

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.experiment.grid import GridConfig
from datamask_pipeline.settings import validated


def test_every_combination_is_an_arm() -> None:
    grid = validated(
        GridConfig,
        {
            "reference": "today",
            "select": {"policy": "datamask", "outlier_deviations": 6},
            "collapse": 0.98,
            "lamb": [0.25, 0.5],
            "diversity": ["Facility", {"Pair_simi": 1, "LogDet": 0.5}],
            "ratio": [0.2],
            "weights": [{"rules": 1}, {"rules": 1, "column:edu": 2}],
        },
    )
    arms = grid.arms()
    assert len(arms) == 8
    assert arms["Facility-lamb0_25-ratio0_2-rules1"] == {
        "select": {"policy": "datamask", "outlier_deviations": 6, "diversity": "Facility", "lamb": 0.25},
        "collapse": 0.98,
        "ratio": 0.2,
        "weights": {"rules": 1},
    }
    assert "Pair_simi1_LogDet0_5-lamb0_5-ratio0_2-rules1_column_edu2" in arms


def test_what_is_not_tried_is_left_to_the_engine() -> None:
    assert GridConfig(reference="today", lamb=(0.5,)).arms() == {
        "lamb0_5": {"select": {"policy": "datamask", "lamb": 0.5}}
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "grid: name what is tried"),
        ({"lamb": [0.5, 0.5]}, "0.5 is repeated"),
        ({"lamda": [0.5]}, "lamda"),
    ],
)
def test_a_sweep_of_nothing_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        validated(GridConfig, {"reference": "today", **values}, "grid")


def test_two_combinations_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two combinations are called 'lamb0_1'"):
        validated(GridConfig, {"reference": "today", "lamb": [0.1, 0.1000000001]}, "grid")
