"""A sweep: settings of the engine tried in every combination, each an arm of an experiment. Knows settings; no data."""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Self

import pydantic

from datamask_pipeline.settings import Settings, each_once

#: Pairs of draws that choose the best arm, and as many or one more that judge it: an interval needs two.
LEAST_DRAWS = 8


class GridConfig(Settings):
    """Every combination of these is an arm; an empty list leaves the setting as `select` or its default has it."""

    reference: str = pydantic.Field(
        description="The arm in use today: what is recommended has to be better than this one."
    )
    select: dict[str, Any] = pydantic.Field(
        default_factory=lambda: {"policy": "datamask"},
        description="The engine's settings that all of them share.",
    )
    collapse: float | None = pydantic.Field(
        None, description="Near-copies at this cosine are collapsed before, for all of them."
    )
    lamb: tuple[float, ...] = pydantic.Field((), description="Weights of quality against diversity.")
    diversity: tuple[str | dict[str, float], ...] = pydantic.Field((), description="Diversity metrics.")
    ratio: tuple[float, ...] = pydantic.Field(
        (),
        description="Shares of the half's tokens that are chosen; of more than the experiment's `ratio`, random ones of the "
        "chosen are learnt, so that all arms learn equally many tokens.",
    )
    weights: tuple[dict[str, float], ...] = pydantic.Field(
        (), description="Weights of the quality scores, which the chain's `score.scorers` names."
    )

    @pydantic.field_validator("lamb", "diversity", "ratio", "weights")
    @classmethod
    def _each_once(cls, values: Any) -> Any:
        return each_once(values)

    @pydantic.model_validator(mode="after")
    def _arms_have_names(self) -> Self:
        combinations = [*self._combinations()]
        if not any(combinations):
            raise ValueError("name what is tried: a list of lamb, diversity, ratio or weights")
        names = [_name(own) for own in combinations]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"two combinations are called {name!r}; give settings that differ in six digits"
                )
        return self

    def _combinations(self) -> Iterator[dict[str, Any]]:
        tried = {name: getattr(self, name) for name in ("diversity", "lamb", "ratio", "weights")}
        tried = {name: values for name, values in tried.items() if values}
        for combination in itertools.product(*tried.values()):
            yield dict(zip(tried, combination, strict=True))

    def arms(self) -> dict[str, dict[str, Any]]:
        """The settings of each arm by its name, which tells the settings that were tried."""
        found = {}
        for own in self._combinations():
            select = self.select | {name: own[name] for name in ("diversity", "lamb") if name in own}
            arm: dict[str, Any] = {
                "select": select,
                "collapse": self.collapse,
                "ratio": own.get("ratio"),
                "weights": own.get("weights"),
            }
            found[_name(own)] = {setting: value for setting, value in arm.items() if value is not None}
        return found


def _name(own: Mapping[str, Any]) -> str:
    return "-".join(_told(setting, value) for setting, value in own.items())


def _told(setting: str, value: Any) -> str:
    """A setting's value as part of a name: ``lamb0_5``, ``Pair_simi``, ``rules1_probe2``."""
    if isinstance(value, Mapping):
        text = "_".join(f"{name}{share:g}" for name, share in value.items())
    else:
        text = value if isinstance(value, str) else f"{setting}{value:g}"
    return re.sub(r"[^A-Za-z0-9]+", "_", text)
