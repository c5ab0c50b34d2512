"""The tightest concave extension of functions of eigenvalues to relaxed masks. Knows no metric.

A relaxed mask spreads its documents over more directions than K documents can span, and the value of its own spectrum
promises what no mask reaches. A mixture of matrices of rank K has a spectrum that is majorised by one of K
eigenvalues; the flattest such one keeps the largest and levels the others over the places left. What a sum of concave
functions is worth there is concave in the matrix, bounds every mask, and is the value itself at binary masks.

Source: Nikolov 2015 (arXiv 1412.0036), there for the determinant. Shape suffix: D eigenvalues.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Spectrum:
    """Eigenvalues, levelled over as many directions as documents can span.

    Attributes:
        levels_D: float64, largest first; those that were levelled all have their common level.
        weights_D: How often each counts in a sum over the directions spanned; they sum to the documents, or to D.
        num_zero: Directions that stay empty.
    """

    levels_D: Tensor
    weights_D: Tensor
    num_zero: float


def levelled(eigenvalues_D: Tensor, count: float) -> Spectrum:
    """The flattest spectrum of `count` eigenvalues that majorises these.

    Args:
        eigenvalues_D: float64, largest first, none below 0 but for rounding.
        count: Documents of a mask, above 0; from D on nothing is levelled.
    """
    levels_D = eigenvalues_D.clamp(min=0)
    dim = len(levels_D)
    if count >= dim:
        return Spectrum(levels_D=levels_D, weights_D=torch.ones_like(levels_D), num_zero=0.0)
    most = max(1, int(torch.tensor(count).ceil()))
    left_D = levels_D.flip(0).cumsum(0).flip(0)[:most]
    places_D = count - torch.arange(most, dtype=torch.float64)
    means_D = left_D / places_D
    # The first level that what comes after does not exceed; the last place is left where rounding hides it.
    levels = torch.nonzero(means_D >= levels_D[:most]).squeeze(1)
    kept = int(levels[0]) if len(levels) else most - 1
    weights_D = torch.ones_like(levels_D)
    weights_D[kept:] = float(places_D[kept]) / (dim - kept)
    return Spectrum(
        levels_D=torch.cat([levels_D[:kept], means_D[kept].expand(dim - kept)]),
        weights_D=weights_D,
        num_zero=dim - count,
    )
