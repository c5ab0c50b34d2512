"""What every configuration model has in common: what stays out of fingerprints, and how a wrong setting is told."""

import importlib
import pkgutil
from typing import Annotated, Any, ClassVar

import numpy as np
import pydantic
import pytest

import datamask_pipeline
from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.settings import Settings, execution_field, validated


class Inner(Settings):
    width: int = pydantic.Field(3, ge=1)
    device: str = execution_field("cpu", description="Where.")


class Outer(Settings):
    inner: Inner = Inner()
    several: dict[str, Inner] = pydantic.Field(default_factory=dict)
    listed: tuple[Inner, ...] = ()
    ratio: Annotated[float, pydantic.Field(le=1)] | None = None
    metric: str | dict[str, float] = "a"
    seeds: tuple[int, ...] = ()
    anything: dict[str, Any] = pydantic.Field(default_factory=dict)
    exact: bool = False
    threads: int = execution_field(1, description="How many.")


def test_what_was_declared_stays_out_of_fingerprints_at_every_depth() -> None:
    here = Outer(several={"x": Inner()}, listed=(Inner(),))
    there = Outer(
        inner=Inner(device="cuda"),
        several={"x": Inner(device="cuda")},
        listed=(Inner(device="cuda"),),
        threads=8,
    )
    assert here.result_config() == there.result_config()
    assert here.result_config() == {
        "inner": {"width": 3},
        "several": {"x": {"width": 3}},
        "listed": [{"width": 3}],
        "ratio": None,
        "metric": "a",
        "seeds": [],
        "anything": {},
        "exact": False,
    }
    assert Outer(inner=Inner(width=4)).result_config() != Outer().result_config()


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"inner": {"widht": 4}}, "embed.inner.widht: unknown setting (did you mean 'width'?)"),
        (
            {"several": {"x": {"widht": 4}}},
            "embed.several.x.widht: unknown setting (did you mean 'width'?)",
        ),
        (
            {"zebra": 4},
            "embed.zebra: unknown setting; choose one of: anything, exact, inner, listed, metric, "
            "ratio, seeds, several, threads",
        ),
        (
            {"listed": [{}, {"width": 0}]},
            "embed.listed.1.width: Input should be greater than or equal to 1 (given: 0)",
        ),
        ({"ratio": float("nan")}, "embed.ratio: Input should be a finite number (given: nan)"),
        ({"ratio": 3}, "embed.ratio: Input should be less than or equal to 1 (given: 3)"),
        (
            {"metric": 3},
            "embed.metric: Input should be a valid string (given: 3), or must be a mapping, e.g. {NAME: VALUE} (given: 3)",
        ),
        ({"ratio": "x", "inner": 3}, "embed.inner: "),
        ({"ratio": True}, "embed.ratio: a boolean stands where a number is needed (given: true)"),
        ({"threads": False}, "embed.threads: a boolean stands where a number is needed (given: false)"),
        ({"metric": {"a": True}}, "embed.metric: a boolean stands where a number is needed"),
        ({"inner": {"width": True}}, "embed.inner.width: a boolean stands where a number is needed"),
        ({"listed": [{"width": True}]}, "embed.listed.0.width: a boolean stands where a number is needed"),
        (
            {"threads": 10**30},
            "embed.threads: whole numbers lie within 9223372036854775807, what 64 bits hold (given: 1",
        ),
        ({"seeds": [0, True]}, "embed.seeds: a boolean stands where a number is needed (given: "),
    ],
)
def test_a_wrong_setting_is_told_by_path_value_and_nearest_name(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        validated(Outer, values, "embed")
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_boolean_stays_one_where_it_may_stand() -> None:
    settings = validated(Outer, {"exact": True, "anything": {"x": [True]}})
    assert settings.exact is True
    assert settings.anything == {"x": [True]}


def test_values_are_told_as_they_would_be_written() -> None:
    assert "value 300" in str(InputError("too wide", value=np.int32(300)))
    with pytest.raises(ConfigurationError, match=r"listed: must be a list .given: null"):
        validated(Outer, {"listed": None})


def test_what_is_missing_and_what_two_settings_say_together() -> None:
    class Needy(Settings):
        root: str
        low: int = 0

        members: ClassVar[dict[str, Any]] = {}

        @pydantic.model_validator(mode="after")
        def _told(self) -> "Needy":
            if self.low > 3:
                raise ValueError("low is above high")
            return self

    with pytest.raises(ConfigurationError, match=r"^source\.options\.root: is missing$"):
        validated(Needy, {}, "source.options")
    with pytest.raises(ConfigurationError, match=r"^source\.options: low is above high$"):
        validated(Needy, {"root": "x", "low": 4}, "source.options")


def test_every_configuration_model_is_one_of_settings() -> None:
    """No model of our own leaves unknown names, infinite numbers or fingerprints to a way of its own."""
    for module in pkgutil.walk_packages(datamask_pipeline.__path__, "datamask_pipeline."):
        importlib.import_module(module.name)
    strangers = [
        model.__qualname__
        for model in _below(pydantic.BaseModel)
        if model.__module__.startswith("datamask_pipeline.") and not issubclass(model, Settings)
    ]
    assert not strangers


def _below(model: type) -> list[type]:
    return [found for child in model.__subclasses__() for found in (child, *_below(child))]
