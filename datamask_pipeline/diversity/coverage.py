"""What a mask covers of references, and what each document adds to that, tile by tile. Knows no metric's settings.

Shape suffixes: N documents, n documents of a tile, R references, r references of a tile, T selected documents, D
dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

TILE_DOCUMENTS, TILE_REFERENCES = 256, 8192

Mapped = Callable[[Callable[[int], Any], Iterable[int]], Iterable[Any]]
"""As the built-in ``map``: results in the items' order, whatever computes them."""


def value_and_marginals(
    embeddings_ND: Tensor, references_R: Tensor, mask_N: Tensor, mapped: Mapped = map
) -> tuple[float, Tensor]:
    """The mean over references of the best selected similarity, and how one document more or less changes it.

    Args:
        embeddings_ND: Unit rows.
        references_R: int64 rows that are references.
        mask_N: bool, at least one document.
        mapped: Computes tiles, on several threads if it likes; the result is the same.

    Returns:
        The mean of similarities clipped at 0; the gain of adding each unselected document and the loss on dropping
        each selected one, float64 of shape (N,), on the CPU.
    """
    selected_T = torch.nonzero(mask_N.to(embeddings_ND.device)).squeeze(1)
    references_RD = embeddings_ND[references_R.to(embeddings_ND.device)]
    selected_TD = embeddings_ND[selected_T]

    def two_best(start: int) -> tuple[Tensor, Tensor]:
        products_rT = references_RD[start : start + TILE_DOCUMENTS] @ selected_TD.T
        best_r2, place_r2 = products_rT.topk(min(2, len(selected_T)), dim=1)
        return best_r2.clamp_(min=0), place_r2[:, 0]

    found = list(mapped(two_best, range(0, len(references_RD), TILE_DOCUMENTS)))
    best_R2 = torch.cat([part[0] for part in found])
    owner_R = selected_T[torch.cat([part[1] for part in found])]
    best_R = best_R2[:, 0]

    def gains(start: int) -> Tensor:
        tile_nD = embeddings_ND[start : start + TILE_DOCUMENTS]
        gains_n = torch.zeros(len(tile_nD), dtype=torch.float64, device=tile_nD.device)
        for first in range(0, len(references_RD), TILE_REFERENCES):
            span = slice(first, first + TILE_REFERENCES)
            above_nr = (tile_nD @ references_RD[span].T).sub_(best_R[span]).clamp_(min=0)
            gains_n += above_nr.sum(1, dtype=torch.float64)
        return gains_n

    changes_N = torch.cat(list(mapped(gains, range(0, len(embeddings_ND), TILE_DOCUMENTS))))
    # What selected documents gain over themselves is rounding; what counts is the loss on dropping them.
    changes_N[selected_T] = 0
    second_R = best_R2[:, 1] if len(selected_T) > 1 else torch.zeros_like(best_R)
    changes_N.index_add_(0, owner_R, (best_R - second_R).double())
    return float(best_R.double().mean()), (changes_N / len(references_RD)).cpu()
