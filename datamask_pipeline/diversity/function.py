"""Anybody's function as a diversity metric: a black box. Knows its values and nothing else.

Shape suffixes: N documents, D embedding dimensions, G masks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from datamask_pipeline.diversity.base import DiversityMetric
from datamask_pipeline.errors import ConfigurationError


class FunctionMetric(DiversityMetric):
    """The function's own value of each mask; it has no marginals and no certificate.

    Formula: the function's. Cost: the function's, once for every mask drawn.

    Args:
        function: Called with copies of ``embeddings_ND`` and ``masks_GN`` as `DiversityMetric.values` is; returns G finite
            numbers, higher is more diverse, which depend on nothing else.

    Raises:
        ConfigurationError: the function cannot be called with two arguments.
    """

    def __init__(self, function: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.name = getattr(function, "__name__", type(function).__name__)  # type: ignore[misc]
        self.function = function
        try:
            inspect.signature(function).bind("embeddings_ND", "masks_GN")
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"diversity function {self.name!r} must take embeddings_ND (N, D) and masks_GN (G, N) and return a "
                f"number for each mask: {error}"
            ) from error

    def values(self, embeddings_ND: Tensor, masks_GN: Tensor) -> Tensor:
        try:  # copies, as a function may change what it is given; what it returns is checked by `base.checked_values`
            given: Tensor = self.function(embeddings_ND.clone(), masks_GN.clone())
        except Exception as error:
            error.add_note(f"raised in diversity function {self.name!r}")
            raise
        return given
