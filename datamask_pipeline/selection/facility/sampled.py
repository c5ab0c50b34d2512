"""A bound for lists that may miss neighbours, from a random sample of references. Knows no search and no quality.

Shape suffixes: N documents, R references, s sampled references, k list entries.

Let ``B(u)`` be the dual bound computed from the listed entries alone, and ``M_y`` the largest similarity between y
and a document that is not on its list. Raising ``u_y`` to ``max(u_y, M_y)`` makes the list complete for y, and
raises the bound by at most ``weight * mean of max(0, M_y - u_y)``. That mean is over numbers between 0 and
``1 - u_y``, so a sample drawn with probabilities proportional to ``1 - u_y`` gives shares X in [0, 1] whose mean m
decides. For any bet b in [0, 1] the product of ``1 + b * (m - X)`` over the sample has expectation 1 and is never
negative, and so has a mixture of such products; by Markov's inequality it exceeds ``1 / p`` with probability p at most
(betting, after Waudby-Smith and Ramdas 2024). Means for which it does are ruled out. Hoeffding's inequality knows
nothing of how small most shares are; the whole bet does.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from datamask_pipeline.selection.facility.lists import NeighbourLists
from datamask_pipeline.selection.facility.nearest import nearest
from datamask_pipeline.selection.parallel import Workers

SAMPLE = 8192
ERROR_PROBABILITY = 1e-3
NUM_BETS = 6
"""Bets of 1, 1/2, 1/4, ..., the first of weight 1/2 and each further one of half as much."""


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
    # Twice the length: beyond it, a ceiling stays below most dual variables; the others are looked at in float32.
    exact = nearest(documents_ND, drawn_s, 2 * lists.length, workers, dtype=dtype)
    missed_s, held_sk = _missed(exact, lists, drawn_s)
    unsure_s = torch.nonzero(_ceiling(exact) > missed_s.maximum(dual_R[drawn_s])).squeeze(1)
    if dtype != torch.float32 and len(unsure_s):
        finer = nearest(documents_ND, drawn_s[unsure_s], 2 * lists.length, workers)
        exact = exact.lengthened(unsure_s, finer)
        missed_s, held_sk = _missed(exact, lists, drawn_s)
    excess_s = missed_s.maximum(_ceiling(exact)) - dual_R[drawn_s]
    share_s = (excess_s.clamp(min=0) / headroom_R[drawn_s]).clamp(max=1)
    held = float(held_sk[:, : lists.length].double().mean())
    return total * mean_at_most(share_s), held


def _ceiling(exact: NeighbourLists) -> Tensor:
    assert exact.ceiling_R is not None, "exact lists have one"
    return exact.ceiling_R.double()


def _missed(exact: NeighbourLists, lists: NeighbourLists, drawn_s: Tensor) -> tuple[Tensor, Tensor]:
    """The largest similarity found that the lists lack, float64; which of those found they hold, bool (s, k)."""
    # One number for each entry of a list: of a list of k entries all pairs would be k^2.
    size = 1 + max(int(exact.documents_Rk.max()), int(lists.documents_Rk.max()))
    places_s1 = torch.arange(len(drawn_s))[:, None] * size
    held_sk = torch.isin(exact.documents_Rk + places_s1, lists.documents_Rk[drawn_s] + places_s1)
    return exact.similarities_Rk.masked_fill(held_sk, 0).amax(1).double(), held_sk


def mean_at_most(share_s: Tensor) -> float:
    """The largest mean of independent variables in [0, 1] for which such a sample is not too unlikely."""
    bets_b = 0.5 ** torch.arange(NUM_BETS, dtype=torch.float64)
    allowed = math.log(1 / ERROR_PROBABILITY)
    low, high = float(share_s.mean()), 1.0
    for _ in range(60):
        middle = (low + high) / 2
        won_b = torch.log1p(bets_b[:, None] * (middle - share_s)).sum(1)
        won = float(torch.logsumexp(won_b + torch.log(bets_b / 2), dim=0))
        low, high = (middle, high) if won <= allowed else (low, middle)
    return high
