"""Moments and scores of a whole block as a map-reduce over chunks. Knows no metric, objective or budget.

Shape suffixes: N documents, n rows of a chunk, D embedding dimensions.

Chunks are fixed by row number; each is one thread's work; chunk sums are added in float64 in order. Moments are
always float32 products: a mask reads a share of the block, and a half-precision product rounds its result too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import LinearForm, Moments, RowMarginals, squared_norms
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """The two passes over a block that moment metrics need.

    Attributes:
        rows: The block.
        workers: Who computes chunks.
        squared_N: ``|x_i|^2`` in float64.
        needs_second: Whether second moments are summed.
    """

    rows: Rows
    workers: Workers
    squared_N: Tensor
    needs_second: bool

    def moments(self, weights_N: Tensor) -> Moments:
        """Moments of a mask, relaxed (floating) or binary (bool); only rows of non-zero weight are read.

        Args:
            weights_N: On the CPU, shape (N,).
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
            second_DD = weighted_nD.T @ rows_nD if self.needs_second else None
            return weighted_nD.sum(0, dtype=torch.float32), second_DD

        first_D = torch.zeros(self.rows.dim, dtype=torch.float64, device=device)
        second_DD = torch.zeros(self.rows.dim, self.rows.dim, dtype=torch.float64, device=device)
        for chunk_first_D, chunk_second_DD in self.workers.map(part, self.rows.spans(len(chosen_n))):
            first_D += chunk_first_D
            if chunk_second_DD is not None:
                second_DD += chunk_second_DD
        weights_n = weights_N[chosen_n].to(torch.float64)
        return Moments(
            count=float(weights_n.sum()),
            first_D=first_D.cpu(),
            second_DD=second_DD.cpu() if self.needs_second else None,
            squared=float(weights_n @ self.squared_N[chosen_n]),
        )

    def scores(
        self, form: LinearForm, dtype: torch.dtype = torch.float32, index_n: Tensor | None = None
    ) -> Tensor:
        """The form's score of every row, or of those of an index: float64 on the CPU."""
        vector_D = form.vector_D.to(device=self.rows.device, dtype=dtype)
        matrix_DD = (
            None if form.matrix_DD is None else form.matrix_DD.to(device=self.rows.device, dtype=dtype)
        )

        def part(span: tuple[int, int]) -> Tensor:
            rows_nD = (
                self.rows.chunk(*span, dtype)
                if index_n is None
                else self.rows.take(index_n[slice(*span)], dtype)
            )
            scores_n = (rows_nD @ vector_D).to(torch.float64)
            if matrix_DD is not None:
                products_nD = rows_nD @ matrix_DD
                scores_n += (products_nD.float() * rows_nD.float()).sum(1).to(torch.float64)
            return scores_n.cpu()

        total = self.rows.num_rows if index_n is None else len(index_n)
        scores_n = self.workers.fill(part, self.rows.spans(total), total)
        squared_n = self.squared_N if index_n is None else self.squared_N[index_n]
        return scores_n + form.squared * squared_n

    def marginals(self, of_rows: RowMarginals, mask_N: Tensor) -> Tensor:
        """Each row's marginal at a mask on the CPU, by a metric's function of rows: float64 on the CPU."""

        def part(span: tuple[int, int]) -> Tensor:
            weights_n = mask_N[slice(*span)].to(device=self.rows.device, dtype=torch.float64)
            return of_rows(self.rows.chunk(*span), weights_n).cpu()

        return self.workers.fill(part, self.rows.spans(), self.rows.num_rows)


def squared_of(rows: Rows, workers: Workers) -> Tensor:
    """``|x_i|^2`` of every row in float64 on the CPU."""
    return workers.fill(lambda span: squared_norms(rows.chunk(*span)).cpu(), rows.spans(), rows.num_rows)
