"""A bound for lists that may miss neighbours, from a random sample of references. Knows no search and no quality.

Shape suffixes: N documents, R references, s sampled references, k list entries.

Let ``B(u)`` be the dual bound computed from the listed entries alone, and ``M_y`` the largest similarity between y
and a document that is not on its list. Raising ``u_y`` to ``max(u_y, M_y)`` makes the list complete for y, and
raises the bound by at most ``weight * mean of max(0, M_y - u_y)``. That mean is over numbers between 0 and
``1 - u_y``, so a sample drawn with probabilities proportional to ``1 - u_y`` bounds it by Hoeffding's inequality in
its Kullback-Leibler form (1963, theorem 1), whatever their distribution.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from datamask_pipeline.selection.facility.lists import NeighbourLists
from datamask_pipeline.selection.facility.nearest import nearest
from datamask_pipeline.selection.parallel import Workers

SAMPLE = 16_384
ERROR_PROBABILITY = 1e-3


def missed_excess(
    documents_ND: Tensor,
    lists: NeighbourLists,
    dual_R: Tensor,
    draws: torch.Generator,
    workers: Workers,
    dtype: torch.dtype,
    sample: int = SAMPLE,
) -> tuple[float, float]:
    """An upper bound on ``mean of max(0, M_y - u_y)`` that holds with probability ``1 - ERROR_PROBABILITY``.

    Args:
        documents_ND: Unit rows, float32; each is a reference.
        lists: Approximate lists of every document.
        dual_R: float64 dual variables u, chosen without looking at this sample.
        draws: Of the sample, with replacement.
        sample: References drawn.

    Returns:
        The bound, and the share of the sampled lists' true entries that the lists hold.
    """
    headroom_R = (1 - dual_R).clamp(min=0)
    total = float(headroom_R.mean())
    if total == 0.0:
        return 0.0, 1.0
    ends_R = headroom_R.cumsum(0)
    points_s = torch.rand(sample, generator=draws, dtype=torch.float64) * ends_R[-1]
    drawn_s = torch.searchsorted(ends_R, points_s, right=True).clamp_(max=len(ends_R) - 1)
    # Twice the length: beyond it, even the ceiling's rounding margin stays below most dual variables.
    exact = nearest(documents_ND, drawn_s, 2 * lists.length, workers, dtype=dtype)
    assert exact.ceiling_R is not None, "exact lists have one"
    held_sk = (exact.documents_Rk[:, :, None] == lists.documents_Rk[drawn_s][:, None, :]).any(2)
    missed_s = exact.similarities_Rk.masked_fill(held_sk, 0).amax(1).maximum(exact.ceiling_R).double()
    share_s = ((missed_s - dual_R[drawn_s]).clamp(min=0) / headroom_R[drawn_s]).clamp(max=1)
    held = float(held_sk[:, : lists.length].double().mean())
    return total * mean_at_most(float(share_s.mean()), sample), held


def mean_at_most(sample_mean: float, sample: int) -> float:
    """The largest mean of a variable in [0, 1] for which so small a sample mean is not too unlikely."""
    allowed = math.log(1 / ERROR_PROBABILITY) / sample
    low, high = sample_mean, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _divergence(sample_mean, middle) <= allowed else (low, middle)
    return high


def _divergence(left: float, right: float) -> float:
    """Kullback-Leibler divergence of two Bernoulli variables."""
    parts = ((left, right), (1 - left, 1 - right))
    return sum(p * math.log(p / q) if q > 0 else math.inf for p, q in parts if p > 0)
