"""Finding a gradient estimator by its name. Knows no estimator: members are files here, or entry points elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from datamask_pipeline.members import Family

if TYPE_CHECKING:
    from datamask_pipeline.selection.estimators.base import GradientEstimator

ESTIMATORS: Family[GradientEstimator] = Family(
    package="datamask_pipeline.selection.estimators",
    attribute="ESTIMATOR",
    base="datamask_pipeline.selection.estimators.base:GradientEstimator",
    kind="gradient estimator",
)


def make_estimator(name: str) -> GradientEstimator:
    """The estimator of that name.

    Raises:
        UnknownNameError: no such estimator.
    """
    return ESTIMATORS.find(name)()
