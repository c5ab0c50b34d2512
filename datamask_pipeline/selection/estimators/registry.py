"""Finding a gradient estimator by its name. Knows no estimator."""

from __future__ import annotations

from importlib import import_module

import datamask_pipeline.selection.estimators as package
from datamask_pipeline.selection.estimators.base import GradientEstimator


def create_estimator(name: str) -> GradientEstimator:
    """The estimator of that name; `SelectionConfig` has refused unknown ones."""
    estimator: GradientEstimator = import_module(f"{package.__name__}.{name}").ESTIMATOR()
    return estimator
