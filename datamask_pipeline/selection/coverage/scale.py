"""Where random masks and the best one stand in a coverage metric. Knows no quality score and no normalisation.

Shape suffixes: N documents, D embedding dimensions, T selected documents.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from datamask_pipeline.diversity.base import CoverageMetric
from datamask_pipeline.selection.coverage.evaluate import coverage_of
from datamask_pipeline.selection.coverage.greedy import empty_state, lazy_greedy
from datamask_pipeline.selection.coverage.nearest import nearest
from datamask_pipeline.selection.parallel import Workers


def mask_value(metric: CoverageMetric, documents_ND: Tensor, mask_N: Tensor, workers: Workers) -> float:
    """The metric of a mask, every chunk of references on one thread."""
    selected_T = torch.nonzero(mask_N).squeeze(1)
    references_V = metric.references(len(documents_ND))
    return coverage_of(documents_ND, references_V, selected_T, workers, torch.float32).mean


def greedy_value(metric: CoverageMetric, documents_ND: Tensor, budget: int, workers: Workers) -> float:
    """What lazy greedy on full lists reaches with nothing but the metric to follow: for a sample of a block."""
    num_documents = len(documents_ND)
    references_V = metric.references(num_documents)
    lists = nearest(documents_ND, references_V, min(num_documents, 256), workers)
    state = empty_state(lists, np.zeros(num_documents), 1.0)
    picks, _ = lazy_greedy(
        state, np.ones(num_documents), np.zeros(num_documents, dtype=np.int64), [float(budget)]
    )
    selected_T = torch.from_numpy(picks)
    return coverage_of(documents_ND, references_V, selected_T, workers, torch.float32).mean
