"""Moments and scores of a whole block as a map-reduce over chunks. Knows no metric, objective or budget.

Where documents are held already, moments are those of a mask and of them together.

Shape suffixes: N documents, n rows of a chunk, D embedding dimensions.

Chunks are fixed by row number; each is one thread's work; chunk sums are added in float64 in order. Moments are
always float32 products: a mask reads a share of the block, and a half-precision product rounds its result too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from datamask_pipeline.diversity.coarse_form import CoarseForm, coarse_form
from datamask_pipeline.diversity.moments import LinearForm, Moments, RowMarginals, squared_norms
from datamask_pipeline.products import second_moment
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.rows import Rows

COARSE_ROWS, TRIED_ROWS = 2**14, 512
"""Rows from which on coarse scores pay in float32 on a processor, as products in bfloat16 cost no more, and other devices
would wait for them; rows evenly over the block, at least, on which they are tried."""


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """The two passes over a block that moment metrics need.

    Attributes:
        rows: The block.
        workers: Who computes chunks.
        squared_N: ``|x_i|^2`` in float64.
        needs_second: Whether second moments are summed.
        held: Moments of documents that stand beside every mask, if there are any.
    """

    rows: Rows
    workers: Workers
    squared_N: Tensor
    needs_second: bool
    held: Moments | None = None

    def moments(self, weights_N: Tensor) -> Moments:
        """Moments of a mask, see `own_moments`, and of what is held."""
        own = self.own_moments(weights_N)
        return own if self.held is None else own.plus(self.held)

    def moved(self, moments: Moments, before_N: Tensor, after_N: Tensor) -> Moments:
        """Moments of a mask from those of another one, of which the fewer rows are read: those that changed, or its own.

        Args:
            moments: Of `before_N` and of what is held.
        """
        changes_N = after_N.to(torch.float64) - before_N.to(torch.float64)
        if int(torch.count_nonzero(changes_N)) >= int(torch.count_nonzero(after_N)):
            return self.moments(after_N)
        held = 0.0 if self.held is None else self.held.count
        count = float(after_N.sum(dtype=torch.float64)) + held
        return replace(moments.plus(self.own_moments(changes_N)), count=count)

    def own_moments(self, weights_N: Tensor, dtype: torch.dtype = torch.float32) -> Moments:
        """Moments of a mask, relaxed (floating) or binary (bool); only rows of non-zero weight are read.

        Args:
            weights_N: On the CPU, shape (N,); of either sign.
            dtype: Arithmetic of second moments. Half precision rounds each sum over a chunk, which hardly shows in
                their norm and much in their forms.
        """
        chosen_n = torch.nonzero(weights_N).squeeze(1)
        relaxed = weights_N.dtype != torch.bool
        device = self.rows.device

        def part(span: tuple[int, int]) -> tuple[Tensor, Tensor | None]:
            index_n = chosen_n[slice(*span)]
            rows_nD = self.rows.take(index_n)
            weighted_nD = rows_nD
            if relaxed:
                weighted_nD = rows_nD * weights_N[index_n].to(device=device, dtype=rows_nD.dtype)[:, None]
            second_DD = None
            if self.needs_second:
                second_DD = second_moment(rows_nD.to(dtype), weighted_nD.to(dtype))
            return weighted_nD.sum(0, dtype=torch.float32), second_DD

        first_D = torch.zeros(self.rows.dim, dtype=torch.float64, device=device)
        sum_DD = None
        if self.needs_second:
            sum_DD = torch.zeros(self.rows.dim, self.rows.dim, dtype=torch.float64, device=device)
        for chunk_first_D, chunk_second_DD in self.workers.map(part, self.rows.spans(len(chosen_n))):
            first_D += chunk_first_D
            if sum_DD is not None and chunk_second_DD is not None:
                sum_DD += chunk_second_DD
        weights_n = weights_N[chosen_n].to(torch.float64)
        return Moments(
            count=float(weights_n.sum()),
            first_D=first_D.cpu(),
            second_DD=None if sum_DD is None else sum_DD.cpu(),
            squared=float(weights_n @ self.squared_N[chosen_n]),
        )

    def scores(
        self,
        form: LinearForm,
        dtype: torch.dtype = torch.float32,
        index_n: Tensor | None = None,
        *,
        coarse: bool = False,
    ) -> Tensor:
        """The form's score of every row, or of those of an index: float64 on the CPU.

        Args:
            form: What scores.
            dtype: Arithmetic of its products.
            index_n: Which rows.
            coarse: Whether an error of a hundredth of the scores' spread does no harm.
        """
        total = self.rows.num_rows if index_n is None else len(index_n)
        scored: LinearForm | CoarseForm = form
        on_cpu = self.rows.device.type == "cpu"
        if coarse and total >= COARSE_ROWS and dtype == torch.float32 and on_cpu:
            tried_n = torch.arange(0, total, total // TRIED_ROWS)
            tried_n = tried_n if index_n is None else index_n[tried_n]
            scored = coarse_form(form, self.rows.take(tried_n), self.squared_N[tried_n])

        def part(span: tuple[int, int]) -> Tensor:
            if index_n is None:
                rows_nD, squared_n = self.rows.chunk(*span), self.squared_N[slice(*span)]
            else:
                places_n = index_n[slice(*span)]
                rows_nD, squared_n = self.rows.take(places_n), self.squared_N[places_n]
            if dtype == torch.float64:
                rows_nD = rows_nD.double()
            return scored.scores(rows_nD, squared_n, dtype).cpu()

        return self.workers.fill(part, self.rows.spans(total), total)

    def marginals(self, of_rows: RowMarginals, mask_N: Tensor) -> Tensor:
        """Each row's marginal at a mask on the CPU, by a metric's function of rows: float64 on the CPU."""

        def part(span: tuple[int, int]) -> Tensor:
            weights_n = mask_N[slice(*span)].to(device=self.rows.device, dtype=torch.float64)
            return of_rows(self.rows.chunk(*span), weights_n).cpu()

        return self.workers.fill(part, self.rows.spans(), self.rows.num_rows)


def squared_of(rows: Rows, workers: Workers) -> Tensor:
    """``|x_i|^2`` of every row in float64 on the CPU."""
    return workers.fill(lambda span: squared_norms(rows.chunk(*span)).cpu(), rows.spans(), rows.num_rows)
