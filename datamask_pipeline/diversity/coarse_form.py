"""Scores along few directions, where these tell documents apart. Knows no metric, mask or learner.

Embeddings mostly lie in a narrow cone. Of the 768 directions of such vectors a few dozen hold nearly all by which ``x' M x``
differs between documents; all others together are hardly more than one number times what is left of ``|x|^2``. Products with
a few directions cost a sixth of those with all. Whether they do is tried on some of the documents: nothing is supposed.

Shape suffixes: n rows, D dimensions, r directions, s directions that are iterated on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import LinearForm
from datamask_pipeline.products import along

DIRECTIONS, FEWER = 64, 6
"""Main directions; there must be so many times as many in all, as half a matrix of them is multiplied by otherwise."""
SPARE, ROUNDS, START_SEED = 8, 2, 0
"""Of the subspace iteration: directions more than are sought, products with the matrix, where it starts."""
MOST_ERROR = 1 / 128
"""Of a score, as a share of their spread."""


@dataclass(frozen=True, kw_only=True)
class CoarseForm:
    """A form whose matrix is a number times the identity but along a few directions: it scores, and nothing else.

    Attributes:
        rest: What is no matter of direction; that number is part of its `squared`.
        directions_Dr: Orthonormal, float32.
        weights_r: What the matrix gives each of them beyond that number, float32.
    """

    rest: LinearForm
    directions_Dr: Tensor
    weights_r: Tensor

    def scores(self, rows_nD: Tensor, squared_n: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """As of the form, by float32 products along the directions whatever the `dtype`."""
        scores_n = self.rest.scores(rows_nD, squared_n, dtype)
        return scores_n.add_(along(rows_nD, self.directions_Dr, self.weights_r))


def coarse_form(form: LinearForm, rows_nD: Tensor, squared_n: Tensor) -> LinearForm | CoarseForm:
    """The form along its matrix's main directions, or itself where these do not tell documents apart well enough.

    Args:
        form: Scores to be approached.
        rows_nD: Some of the documents, on which the error is measured.
        squared_n: Their ``|x|^2``.
    """
    matrix_DD = form.matrix_DD
    if matrix_DD is None or len(matrix_DD) < FEWER * DIRECTIONS or not bool(torch.isfinite(matrix_DD).all()):
        return form
    coarse = _along_main_directions(form, matrix_DD)
    exact_n = form.scores(rows_nD, squared_n, torch.float32)
    error_n = coarse.scores(rows_nD, squared_n) - exact_n
    return coarse if float(error_n.abs().max()) < MOST_ERROR * float(exact_n.std()) else form


def _along_main_directions(form: LinearForm, matrix_DD: Tensor) -> CoarseForm:
    """By subspace iteration (Halko, Martinsson and Tropp 2011, arXiv 0909.4061) from the same start whatever the matrix."""
    symmetric_DD = (matrix_DD + matrix_DD.T) / 2
    draws = torch.Generator().manual_seed(START_SEED)
    basis_Ds = torch.randn(len(matrix_DD), DIRECTIONS + SPARE, generator=draws, dtype=torch.float64)
    for _ in range(ROUNDS):
        basis_Ds = torch.linalg.qr(symmetric_DD @ basis_Ds).Q
    values_s, turned_ss = torch.linalg.eigh(basis_Ds.T @ (symmetric_DD @ basis_Ds))
    main_r = values_s.abs().argsort(descending=True, stable=True)[:DIRECTIONS]
    values_r = values_s[main_r]
    # Of what is left, vectors reach more into directions of large eigenvalues: these are what vectors share.
    left = float(symmetric_DD.square().sum() - values_r.square().sum())
    trace = float(symmetric_DD.trace() - values_r.sum())
    level = left / trace if left > 0 and trace**2 >= left else 0.0  # eigenvalues of both signs have no number
    return CoarseForm(
        rest=LinearForm(vector_D=form.vector_D, matrix_DD=None, squared=form.squared + level),
        directions_Dr=(basis_Ds @ turned_ss[:, main_r]).float(),
        weights_r=(values_r - level).float(),
    )
