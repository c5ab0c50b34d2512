"""Greedy independent set thresholding: the best by quality that lie far apart. Knows no metric of the objective.

Shape suffixes: N documents, K of a mask, k taken so far, n candidates of a block, t taken of these, D embedding dimensions.

A mask is worth ``lamb * mean quality + (1 - lamb) * smallest distance / largest possible``. Distances are Euclidean ones of
unit vectors, the smallest that of two selected documents; the largest possible is ``sqrt(2 K / (K - 1))``, as no K unit
vectors all lie further apart. At each threshold of distance a greedy takes the best by quality among those at least so far
from all taken; the best of these masks is kept, beside the plain best by quality, which is that of threshold 0. Then
thresholds half a step below and above that of the best one are tried, a quarter and an eighth.

Masks have exactly the budget: what a threshold leaves open is filled up with the best by quality of the others, and the
smallest distance is then what it is. The pair at the largest distance, from which the paper starts too, is not looked for.
Without quotas any mask, its smallest distance a share s of the largest possible, is worth at most
``(1 - lamb) s (1 - 1 / (2 + 2 step))`` more than the one found, or ``(1 - lamb) s`` where s is below the step: at a
threshold of half its distance or less each document taken closes at most one of that mask's, so that the greedy fills the
budget with quality no less. Under quotas nothing is proved.

Source: GIST (arXiv 2405.18754), with a linear utility. Its thresholds end at the block's largest distance, here at the
largest possible for K; none are tried between them there.
Cost: at most ``N K D`` a threshold, where the budget is not filled; about ``K K D`` where the first candidates fill it. One
greedy serves all thresholds up to the smallest distance of what it took. Memory: K vectors in float32, and tiles.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from datamask_pipeline.selection.budget import TIE, lots
from datamask_pipeline.selection.parallel import Span
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.rows import unit
from datamask_pipeline.selection.solution import Solution

BLOCK_ROWS = 256
"""Candidates that are compared with one another."""
SLICE_ROWS = 128
"""Candidates that one thread compares with those taken."""
TILE_ROWS = 4096
"""Documents taken that a slice is compared with at once."""
HALVED = 3
"""How often the step is halved around the best threshold of the sweep."""


def choose_by_distances(problem: Problem, step: float) -> Solution:
    """The best mask of a geometric sweep of distances, each this share above the one before; see the module."""
    lamb, quality_N = problem.objective.lamb, problem.objective.quality_N
    if problem.budget.takes_everything:
        return Solution(mask_N=torch.ones(problem.num_rows, dtype=torch.bool), scores_N=quality_N.clone())
    total = int(sum(problem.budget.limits))
    largest = math.sqrt(2 * total / (total - 1))

    def value(index_K: Tensor, smallest: float) -> float:
        return lamb * float(quality_N[index_K].mean()) + (1 - lamb) * smallest / largest

    order_N = _by_quality(problem)
    room_KD = torch.empty(total, problem.rows.dim, device=problem.rows.device)
    best = _Apart(problem, room_KD)
    best.take(best.rest(order_N))
    reached, chosen_at, served = value(best.index_k, best.smallest), 0.0, best.smallest

    def attempt(threshold: float) -> float:
        """Keep the mask of a threshold where it is the best so far, and tell what its greedy's smallest distance is."""
        nonlocal best, reached, chosen_at
        found = _Apart(problem, room_KD)
        found.take(order_N, threshold)
        apart, rest_n = found.smallest, found.rest(order_N)
        whole_K = torch.cat([found.index_k, rest_n])
        # What is filled up only comes closer together: it is left as soon as it can no longer be the best.
        found.take(rest_n, beyond=(reached - value(whole_K, 0.0)) / (1 - lamb) * largest)
        if found.full and value(whole_K, found.smallest) > reached:
            best, reached, chosen_at = found, value(whole_K, found.smallest), threshold
        return apart

    thresholds = [] if lamb == 1 else _thresholds(largest, step)
    nearer = [(1 + step) ** (side / 2**halved) for halved in range(1, HALVED + 1) for side in (-1, 1)]
    num_steps = len(thresholds) + len(nearer)
    for place, threshold in enumerate(thresholds, 1):
        if threshold > served:
            served = attempt(threshold)
        problem.report({"step": place, "num_steps": num_steps})
    for place, factor in enumerate(nearer if chosen_at else [], len(thresholds) + 1):
        attempt(chosen_at * factor)
        problem.report({"step": place, "num_steps": num_steps})
    mask_N = torch.zeros(problem.num_rows, dtype=torch.bool)
    mask_N[best.index_k] = True
    return Solution(
        mask_N=mask_N,
        scores_N=quality_N.clone(),
        notes={
            "value": reached,
            "smallest_distance": best.smallest,
            "largest_possible_distance": largest,
            "threshold": chosen_at,
            "thresholds": len(thresholds),
        },
    )


def _by_quality(problem: Problem) -> Tensor:
    """Every document, the best by quality first; of equal ones the higher lot: int64 of shape (N,)."""
    lots_N = torch.argsort(lots(problem.budget.seed, problem.num_rows), descending=True)
    return lots_N[torch.argsort(problem.objective.quality_N[lots_N], descending=True, stable=True)]


def _thresholds(largest: float, step: float) -> list[float]:
    """Distances from half a step of the largest up to the largest, each a step above the one before."""
    count = math.floor(math.log(2 / step) / math.log1p(step)) + 1
    return [step / 2 * largest * (1 + step) ** place for place in range(count)]


class _Apart:
    """Documents taken within the budget, and how near the nearest two of them are.

    Args:
        problem: Whose documents and budget.
        room_KD: float32: where the vectors taken lie, of the set that is being taken alone.
    """

    def __init__(self, problem: Problem, room_KD: Tensor) -> None:
        self.rows, self.workers, self.groups_N = problem.rows, problem.workers, problem.budget.groups_N
        self.left_G = torch.tensor(problem.budget.limits).long()
        self.index_K, self.rows_KD = torch.empty(len(room_KD), dtype=torch.int64), room_KD
        self.count = 0
        self.product = -math.inf

    @property
    def full(self) -> bool:
        """Whether the budget is met."""
        return self.count == len(self.index_K)

    @property
    def index_k(self) -> Tensor:
        """Those taken so far, in the order of their turns."""
        return self.index_K[: self.count]

    @property
    def smallest(self) -> float:
        """The smallest distance of two taken; infinite without two, 0 where float32 products tell them not apart."""
        if self.product == -math.inf:
            return math.inf
        return math.sqrt(2 - 2 * self.product) if self.product < 1 - TIE else 0.0

    def rest(self, order_N: Tensor) -> Tensor:
        """What fills the budget up: the first in this order that are not taken, of each group as many as are left."""
        taken_N = torch.zeros(len(order_N), dtype=torch.bool)
        taken_N[self.index_k] = True
        open_n = order_N[~taken_N[order_N]]
        groups_n = self.groups_N[open_n]
        parts = [open_n[groups_n == group][:left] for group, left in enumerate(self.left_G.tolist()) if left]
        return torch.cat(parts) if parts else open_n[:0]

    def take(self, order_n: Tensor, threshold: float | None = None, beyond: float = -math.inf) -> None:
        """Take documents in this order until the budget is met.

        Args:
            order_n: int64.
            threshold: How far a document has to lie from all taken before; none takes any.
            beyond: Stop where two that were taken lie no further apart.
        """
        cut = math.inf if threshold is None else 1 - threshold**2 / 2
        for start in range(0, len(order_n), BLOCK_ROWS):
            if self.full or self.smallest <= beyond:
                return
            index_n = order_n[start : start + BLOCK_ROWS]
            index_n = index_n[self.left_G[self.groups_N[index_n]] > 0]
            rows_nD = unit(self.rows.take(index_n))
            nearest_n = self._nearest(rows_nD)
            far_n = torch.nonzero(nearest_n <= cut).squeeze(1)
            if len(far_n):
                self._take_of(index_n[far_n], rows_nD[far_n.to(rows_nD.device)], nearest_n[far_n], cut)

    def _nearest(self, rows_nD: Tensor) -> Tensor:
        """Each candidate's largest product with a document taken; minus infinity where none is."""
        if self.count == 0 or len(rows_nD) == 0:
            return torch.full((len(rows_nD),), -math.inf)
        taken_kD = self.rows_KD[: self.count]
        tiles = [taken_kD[low : low + TILE_ROWS] for low in range(0, self.count, TILE_ROWS)]

        def work(span: Span) -> Tensor:
            part_nD = rows_nD[slice(*span)]
            return torch.stack([(part_nD @ tile_kD.T).amax(1) for tile_kD in tiles]).amax(0).cpu()

        starts = range(0, len(rows_nD), SLICE_ROWS)
        spans = [(start, min(start + SLICE_ROWS, len(rows_nD))) for start in starts]
        return self.workers.fill(work, spans, len(rows_nD))

    def _take_of(self, index_n: Tensor, rows_nD: Tensor, nearest_n: Tensor, cut: float) -> None:
        """Take those of a block, far from all taken before it, that lie far from one another too."""
        products_nn = (rows_nD @ rows_nD.T).cpu().fill_diagonal_(-math.inf)
        near_nn = (products_nn > cut).numpy()
        closed_n = np.zeros(len(index_n), dtype=bool)
        left, taken = self.left_G.tolist(), []
        for place, group in enumerate(self.groups_N[index_n].tolist()):
            if left[group] and not closed_n[place]:
                taken.append(place)
                left[group] -= 1
                closed_n |= near_nn[place]
        self.left_G = torch.tensor(left)
        taken_t = torch.tensor(taken)
        among_tt = products_nn[taken_t][:, taken_t]
        self.product = max(self.product, float(nearest_n[taken_t].max()), float(among_tt.max()))
        end = self.count + len(taken)
        self.index_K[self.count : end] = index_n[taken_t]
        self.rows_KD[self.count : end] = rows_nD[taken_t.to(rows_nD.device)]
        self.count = end
