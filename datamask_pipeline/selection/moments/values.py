"""What a binary mask is worth. Knows statistics and the objective; no learner and no budget.

Shape suffixes: N documents, K of a mask, D embedding dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import Moments, are_few
from datamask_pipeline.selection.moments.statistics import Statistics
from datamask_pipeline.selection.objective import MomentObjective


def value_of(
    objective: MomentObjective, statistics: Statistics, mask_N: Tensor, moments: Moments | None = None
) -> float:
    """The objective of a mask: of few documents in many dimensions by their products with each other.

    Args:
        moments: Of the mask and of what is held, where they are known.
    """
    if statistics.held is None and are_few(int(mask_N.sum()), statistics.rows.dim):
        rows_KD = statistics.rows.take(torch.nonzero(mask_N).squeeze(1)).double().cpu()
        if (value := objective.value_of_rows(mask_N, rows_KD)) is not None:
            return value
    return objective.value(mask_N, statistics.moments(mask_N) if moments is None else moments)
