"""What a mask covers, exactly, and what each document adds to it. Knows no quality, budget or search arithmetic.

Shape suffixes: N documents, R references, T selected documents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from datamask_pipeline.selection.facility.lists import NO_ENTRY, NeighbourLists
from datamask_pipeline.selection.facility.nearest import nearest
from datamask_pipeline.selection.parallel import Workers

GUARD = 4
"""Candidates whose similarity is computed again in float32 to find the two best."""


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """The best and second-best selected document of every reference.

    Attributes:
        best_R: float32 similarity, clipped at 0.
        second_R: float32, 0 where one document is selected.
        owner_R: int64 row of the best one, -1 where it is not known.
        runner_R: int64 row of the second best, -1 where there is none or it is not known.
    """

    best_R: Tensor
    second_R: Tensor
    owner_R: Tensor
    runner_R: Tensor

    @property
    def mean(self) -> float:
        """The metric of the mask, summed in float64."""
        return float(self.best_R.double().mean())


def coverage_of(
    documents_ND: Tensor,
    references_R: Tensor,
    selected_T: Tensor,
    workers: Workers,
    dtype: torch.dtype,
) -> Coverage:
    """Every reference against every selected document.

    The two best are found in `dtype` among `GUARD` candidates and computed in float32: with a coarser `dtype` a
    near tie may be missed, so that the coverage is never overstated.
    """
    lists = nearest(documents_ND, references_R, GUARD, workers, dtype=dtype, candidates_C=selected_T)
    alone = lists.length < 2
    return Coverage(
        best_R=lists.similarities_Rk[:, 0],
        second_R=torch.zeros(len(references_R)) if alone else lists.similarities_Rk[:, 1],
        owner_R=lists.documents_Rk[:, 0],
        runner_R=torch.full_like(references_R, -1) if alone else lists.documents_Rk[:, 1],
    )


def listed_coverage(lists: NeighbourLists, selected_T: Tensor, floor_R: Tensor | None = None) -> Coverage:
    """As `coverage_of` from the lists alone; what is not listed counts as the floor, the lists' own when none.

    With the lists' own floor, a reference without a selected document on its list is overstated: see `completed`.
    """
    floor_R = lists.floor_R if floor_R is None else floor_R
    selected_Rk = _mask(lists, selected_T)[lists.documents_Rk] & (lists.similarities_Rk != NO_ENTRY)
    rank_Rk = selected_Rk.cumsum(1)
    first_R1 = ((rank_Rk == 1) & selected_Rk).float().argmax(1, keepdim=True)
    second_R1 = ((rank_Rk == 2) & selected_Rk).float().argmax(1, keepdim=True)
    best_R, second_R = (
        lists.similarities_Rk.gather(1, place_R1).squeeze(1) for place_R1 in (first_R1, second_R1)
    )
    owner_R, runner_R = (
        lists.documents_Rk.gather(1, place_R1).squeeze(1) for place_R1 in (first_R1, second_R1)
    )
    held_R = rank_Rk[:, -1]
    return Coverage(
        best_R=best_R.where(held_R > 0, floor_R),
        second_R=second_R.where(held_R > 1, floor_R),
        owner_R=owner_R.where(held_R > 0, -1),
        runner_R=runner_R.where(held_R > 1, -1),
    )


def reached_outside(lists: NeighbourLists, coverage: Coverage) -> Tensor:
    """What a mask reaches without the lists, where that is known to be less than their floor: float32 of shape (R,).

    Near-copies can fill a list, and its floor then says nothing of how far the next other document is.
    """
    floor_R = lists.floor_R
    return floor_R.minimum(coverage.best_R.where(coverage.best_R < floor_R, coverage.second_R))


def completed(
    lists: NeighbourLists,
    listed: Coverage,
    documents_ND: Tensor,
    references_R: Tensor,
    selected_T: Tensor,
    workers: Workers,
    dtype: torch.dtype,
) -> Coverage:
    """What the lists say of a mask; references of which they do not say enough against every selected document.

    Lists with a ceiling say enough where the second best on them is known and reaches it. Others may have missed a
    better one anyhow, so that a reference is only looked at where none is on its list, in `dtype`: the coverage is
    never overstated.
    """
    open_R = listed.owner_R < 0
    if lists.ceiling_R is not None:
        open_R = (listed.runner_R < 0) | (listed.second_R < lists.ceiling_R)
        dtype = torch.float32  # so that all of the coverage is exact
    open_r = torch.nonzero(open_R).squeeze(1)
    if not len(open_r):
        return listed
    exact = coverage_of(documents_ND, references_R[open_r], selected_T, workers, dtype)
    return Coverage(
        best_R=listed.best_R.index_copy(0, open_r, exact.best_R),
        second_R=listed.second_R.index_copy(0, open_r, exact.second_R),
        owner_R=listed.owner_R.index_copy(0, open_r, exact.owner_R),
        runner_R=listed.runner_R.index_copy(0, open_r, exact.runner_R),
    )


def _mask(lists: NeighbourLists, selected_T: Tensor) -> Tensor:
    return torch.zeros(lists.num_documents, dtype=torch.bool).index_fill_(0, selected_T, True)


def listed_marginals(lists: NeighbourLists, coverage: Coverage) -> Tensor:
    """Gain of adding each unselected document, loss on dropping each selected one, in the metric's units.

    Losses are exact. A gain leaves out what a document would add to references whose list it is not on, which is
    nothing where the best selected one is listed.

    Returns:
        float64 of shape (N,).
    """
    gains_Rk = (lists.similarities_Rk - coverage.best_R[:, None]).clamp_(min=0).double()
    changes_N = np.bincount(
        lists.documents_Rk.reshape(-1).numpy(),
        weights=gains_Rk.reshape(-1).numpy(),
        minlength=lists.num_documents,
    )
    owned_R = coverage.owner_R >= 0
    losses_R = (coverage.best_R - coverage.second_R).double()
    changes_N += np.bincount(
        coverage.owner_R[owned_R].numpy(), weights=losses_R[owned_R].numpy(), minlength=lists.num_documents
    )
    return torch.from_numpy(changes_N / lists.num_references)
