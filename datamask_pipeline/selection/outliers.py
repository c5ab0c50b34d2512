"""Documents that are near to no others, on a robust scale: noise looks diverse to every metric. Knows no metric or score.

A document's likeness to its neighbours is its mean cosine to the nearest few. Isotropic noise has hardly any, and what is
rare but there more than a few times has as much as what is frequent. Neighbours and scale are those of the block itself, of
which up to half may be noise.

Shape suffixes: N documents, k entries of a list.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from datamask_pipeline.selection.facility.choose import MOST_EXACT
from datamask_pipeline.selection.facility.clustered import clustered_lists
from datamask_pipeline.selection.facility.nearest import nearest
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.rows import Rows
from datamask_pipeline.selection.seeds import generator

NEIGHBOURS = 8
"""More than a few copies of one noise would have to be there to pass."""
NORMAL = 1.4826
"""Times the median distance from the median: the standard deviation, of a normal distribution."""


def outlying(rows: Rows, deviations: float, seed: int, workers: Workers) -> Tensor:
    """Which documents are less like their neighbours than the block's median by more than so many standard deviations.

    The deviation is robust, and that of the lower half: near-copies stretch the upper one.

    Args:
        rows: The block; all of it is taken into memory.
        deviations: How many.
        seed: Of the clusters that neighbours come from in larger blocks.
        workers: Threads.

    Returns:
        bool of shape (N,).
    """
    likeness_N = _likeness(rows, seed, workers)
    median = float(np.median(likeness_N.numpy()))
    below_n = median - likeness_N[likeness_N < median]
    if not len(below_n):
        return torch.zeros(len(likeness_N), dtype=torch.bool)
    return likeness_N < median - deviations * NORMAL * float(np.median(below_n.numpy()))


def _likeness(rows: Rows, seed: int, workers: Workers) -> Tensor:
    """Mean cosine, where it is negative 0, to the nearest others: float64 of shape (N,)."""
    documents_ND, everyone_N = rows.everything(), torch.arange(rows.num_rows)
    length = min(NEIGHBOURS + 1, rows.num_rows)
    if rows.num_rows <= MOST_EXACT:
        lists = nearest(documents_ND, everyone_N, length, workers)
    else:
        lists = clustered_lists(documents_ND, length, generator(seed, "outliers"), workers, torch.float32)
    similarities_Nk = lists.similarities_Rk.double().clamp(min=0)
    own_N1 = (lists.documents_Rk == everyone_N[:, None]).double()
    others = length - 1
    # Where exact copies keep a document off its own list, the last of them makes room.
    similarities_Nk = torch.where(own_N1 > 0, 0.0, similarities_Nk)
    whole_N = own_N1.sum(1) > 0
    total_N = similarities_Nk.sum(1) - torch.where(whole_N, 0.0, similarities_Nk[:, -1])
    return total_N / others
