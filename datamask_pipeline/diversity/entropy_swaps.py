"""What swapping two documents does to the entropy of a mask's eigenvalues, exactly. Knows no quality, budget or mask.

``x log x`` is an integral over t of ``x / (1 + t) - x / (x + t)``, and a trace of resolvents is the slope of a
log-determinant. So the sum of ``l log l`` over the eigenvalues of C moves by the change d of its trace, less the integral
over t of the change of ``log det(C + t)`` beside ``d / (1 + t)``; and that change the matrix determinant lemma has in
closed form for one document that comes and one that goes.

Shape suffixes: T candidates, O of them outside a mask, I inside it, D embedding dimensions, R directions that the mask
spans, J nodes of the integral.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import are_few
from datamask_pipeline.diversity.swap_models import Floats, Places, SwapModel

STEP = 1.1
NODES = torch.arange(-19, 17, dtype=torch.float64).mul(STEP).exp()
"""Evenly in log t, from 1e-9 to 4e7: the rule errs by ``exp(-2 pi^2 / STEP)``, 2e-8, and so does what lies outside."""
FOLLOWED = 256
"""Directions up to which eigenvalues are found anew after each swap."""


class EntropySwaps(SwapModel):
    """The model of ``-tr(C log C)`` of a density C, the sum of ``x x'`` over a mask divided by its trace.

    Args:
        rows_TD: The candidates, float64 on the CPU.
        second_DD: The sum over the mask, float64.
        final: The trace where the mask is full; additions to a mask that is not are divided by it.
        resolution: What the sum resolves, a share of its largest eigenvalue: what lies below counts as none.
        inside_I: The candidates that the sum is of, where there is nothing else.
    """

    promising = (32, 2**10)
    pairs_at_once = 2**16
    affordable = 2**21

    def __init__(
        self,
        rows_TD: Tensor,
        second_DD: Tensor,
        final: float,
        resolution: float,
        inside_I: Places | None = None,
    ) -> None:
        self.rows_TD, self.final, self.resolution = rows_TD, final, resolution
        self.squared_T = torch.linalg.vecdot(rows_TD, rows_TD)
        values_R, basis_DR = _directions(second_DD, None if inside_I is None else rows_TD[inside_I])
        kept_R = values_R > resolution * max(1.0, float(values_R.max()) if len(values_R) else 0.0)
        self.values_R, self.basis_DR = values_R[kept_R], basis_DR[:, kept_R]
        self.along_TR = rows_TD @ self.basis_DR
        self.follows = min(rows_TD.shape[1], len(self.values_R)) <= FOLLOWED
        self._prepare()

    def _prepare(self) -> None:
        """All that is known of the mask's eigenvalues and of every candidate along them."""
        self.beside_T = self.squared_T - self.along_TR.square().sum(1)
        self.beside_T[self.beside_T < self._least()] = 0.0
        self.total = float(self.values_R.sum())
        self.energy = float(torch.xlogy(self.values_R, self.values_R).sum())
        self.nodes_J = NODES * (self.total or 1.0)
        self.inverse_RJ = 1 / (self.values_R[:, None] + self.nodes_J)
        self.own_TJ = self.along_TR.square() @ self.inverse_RJ + self.beside_T[:, None] / self.nodes_J

    def _least(self) -> float:
        """What a document must have beside the mask's directions, where its own share of those left out may be as much."""
        if len(self.values_R) == self.rows_TD.shape[1]:
            return float("inf")
        return 4 * self.resolution * max(1.0, float(self.values_R[-1]) if len(self.values_R) else 1.0)

    def _energies(self, traces: Tensor, logarithms: Tensor) -> Tensor:
        """The change of the sum of ``l log l`` from those of the trace and, along the last axis, of ``log det(C + t)``."""
        beside = logarithms - traces[..., None] / (1 + self.nodes_J)
        moved: Tensor = traces - beside @ (self.nodes_J * STEP)
        return moved

    def _alone(self, traces_T: Tensor, logarithms_TJ: Tensor) -> Floats:
        moved_T = self._energies(traces_T, logarithms_TJ)
        changes_T: Floats = ((np.log(self.final) * traces_T - moved_T) / self.final).numpy()
        return changes_T

    def additions(self) -> Floats:
        return self._alone(self.squared_T, self.own_TJ.log1p())

    def removals(self, inside_I: Places) -> Floats:
        own_IJ = self.own_TJ[inside_I].clamp(max=1 - 1e-15)
        return self._alone(-self.squared_T[inside_I], torch.log1p(-own_IJ))

    def tangents(self) -> Floats:
        # The derivative of the entropy; without bound where the mask has no part in what a document points to.
        logs_R = torch.log(self.values_R / self.total)
        slopes_T = -(self.along_TR.square() @ logs_R) / self.total
        slopes_T += self.squared_T * float(self.values_R @ logs_R) / self.total**2
        return torch.where(self.beside_T > 0, torch.inf, slopes_T).numpy()

    def table(self, outside_O: Places, inside_I: Places) -> Floats:
        outside_OR, inside_IR = self.along_TR[outside_O], self.along_TR[inside_I]
        factors_JOI = torch.stack([(outside_OR * inverse_R) @ inside_IR.T for inverse_R in self.inverse_RJ.T])
        factors_JOI.square_()
        factors_JOI += (1 + self.own_TJ[outside_O]).T[:, :, None] * (1 - self.own_TJ[inside_I]).T[:, None]
        traces_OI = self.squared_T[outside_O][:, None] - self.squared_T[inside_I]
        logarithms = factors_JOI.clamp_(min=1e-15).log_().permute(1, 2, 0)
        moved_OI = self._energies(traces_OI, logarithms)
        after_OI = self.total + traces_OI
        before = np.log(self.total) - self.energy / self.total
        changes_OI: Floats = (after_OI.log() - (self.energy + moved_OI) / after_OI - before).numpy()
        return changes_OI

    def swap(self, into: int, out: int) -> None:
        if self.follows:
            self._move(into, out)

    def add(self, into: int) -> None:
        self._move(into, None)

    def _move(self, into: int, out: int | None) -> None:
        """Brings the eigenvalues up to date within the directions so far and the one that the new document adds."""
        values_R = self.values_R
        if float(self.beside_T[into]) > 0:
            new_D = self.rows_TD[into] - self.basis_DR @ self.along_TR[into]
            new_D -= self.basis_DR @ (self.basis_DR.T @ new_D)
            new_D /= torch.linalg.vector_norm(new_D)
            self.basis_DR = torch.cat([self.basis_DR, new_D[:, None]], dim=1)
            self.along_TR = torch.cat([self.along_TR, (self.rows_TD @ new_D)[:, None]], dim=1)
            values_R = torch.cat([values_R, values_R.new_zeros(1)])
        inner_RR = torch.diag(values_R) + torch.outer(self.along_TR[into], self.along_TR[into])
        if out is not None:
            inner_RR -= torch.outer(self.along_TR[out], self.along_TR[out])
        values_R, vectors_RR = torch.linalg.eigh(inner_RR)
        kept_R = values_R > self.resolution * max(1.0, float(values_R[-1]))
        self.values_R = values_R[kept_R]
        self.basis_DR, self.along_TR = (
            self.basis_DR @ vectors_RR[:, kept_R],
            self.along_TR @ vectors_RR[:, kept_R],
        )
        self._prepare()


def _directions(second_DD: Tensor, rows_ID: Tensor | None) -> tuple[Tensor, Tensor]:
    """Eigenvalues, the smallest first, and eigenvectors of a sum over rows; of few rows those alone that are not 0."""
    if rows_ID is None or not are_few(*rows_ID.shape):
        values_D, vectors_DD = torch.linalg.eigh(second_DD)
        return values_D, vectors_DD
    _, singular_I, vectors_ID = torch.linalg.svd(rows_ID, full_matrices=False)
    return singular_I.square().flip(0), vectors_ID.flip(0).T
