"""Finding a diversity metric by its name. Knows no metric: members are files here, or entry points elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.members import Family

if TYPE_CHECKING:
    from datamask_pipeline.diversity.base import DiversityMetric

METRICS: Family[DiversityMetric] = Family(
    package="datamask_pipeline.diversity",
    attribute="METRIC",
    base="datamask_pipeline.diversity.base:DiversityMetric",
    kind="diversity metric",
)


def make_metric(name: str, options: Mapping[str, Any] | None = None) -> DiversityMetric:
    """The metric of that name, built with the options given.

    Raises:
        UnknownNameError: no such metric.
        ConfigurationError: an option the metric does not take.
    """
    member = METRICS.find(name)
    try:
        return member(**(options or {}))
    except TypeError as error:
        raise ConfigurationError(f"diversity metric {name!r} refuses its options: {error}") from error
