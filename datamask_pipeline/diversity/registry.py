"""Finding a diversity metric by its name. Knows no metric: members are files here, or entry points elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import datamask_pipeline.diversity as package
from datamask_pipeline.errors import ConfigurationError, UnknownNameError

if TYPE_CHECKING:
    from datamask_pipeline.diversity.base import DiversityMetric

ENTRY_POINT_GROUP = "datamask_pipeline.diversity"
NOT_MEMBERS = frozenset({"base", "registry", "moments"})


def metric_classes() -> dict[str, type[DiversityMetric]]:
    """Every metric there is, by name: those of this package's files, then those of entry points.

    Raises:
        ConfigurationError: a file without ``METRIC``, or two members of one name.
    """
    found: dict[str, type[DiversityMetric]] = {}
    for module in iter_modules(package.__path__):
        if module.name not in NOT_MEMBERS:
            _add(
                found,
                getattr(import_module(f"{package.__name__}.{module.name}"), "METRIC", None),
                module.name,
            )
    for point in entry_points(group=ENTRY_POINT_GROUP):
        _add(found, point.load(), point.name)
    return found


def create_metric(name: str, options: Mapping[str, Any] | None = None) -> DiversityMetric:
    """The metric of that name, built with the options given.

    Raises:
        UnknownNameError: no such metric.
        ConfigurationError: an option the metric does not take.
    """
    classes = metric_classes()
    if name not in classes:
        raise UnknownNameError("diversity metric", name, classes)
    try:
        return classes[name](**(options or {}))
    except TypeError as error:
        raise ConfigurationError(f"diversity metric {name!r} refuses its options: {error}") from error


def _add(found: dict[str, type[DiversityMetric]], member: Any, origin: str) -> None:
    from datamask_pipeline.diversity.base import DiversityMetric

    if not (isinstance(member, type) and issubclass(member, DiversityMetric)):
        raise ConfigurationError(
            f"diversity metric file or entry point {origin!r} gives no DiversityMetric class"
        )
    if member.name in found:
        raise ConfigurationError(
            f"two diversity metrics are called {member.name!r}; rename that of {origin!r}"
        )
    found[member.name] = member
