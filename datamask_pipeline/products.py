"""Quadratic forms and second moments of many rows, each product of two dimensions made once. Knows no metric and no mask.

``x' M x`` needs ``M`` only on and above its diagonal, where all but the diagonal counts twice, and ``X' W X`` is
symmetric: by blocks of dimensions both take little more than half of a matrix product. Tiles of rows stay in the
processor's cache, and small enough that no tensor is given new pages by the system.

Shape suffixes: n rows, D dimensions.
"""

from __future__ import annotations

import platform

import torch
from torch import Tensor

TILE, WIDTH = 1024, 128
"""Rows and dimensions of a block."""


def packable(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether oneDNN multiplies by matrices laid out for it once, on this processor and in this build of torch."""
    return (
        device.type == "cpu"
        and platform.machine().lower() in ("x86_64", "amd64")
        and torch._C._has_mkldnn
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and (
            dtype == torch.float32
            or (dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())
        )
    )


class QuadraticForm:
    """``x' M x`` of rows.

    Args:
        matrix_DD: ``M``; a form knows its symmetric part only.
        dtype: Arithmetic of the products; their sums are float32, or float64 where products are.
        device: Where rows live.
    """

    def __init__(self, matrix_DD: Tensor, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype = dtype
        dim = len(matrix_DD)
        width = WIDTH if device.type == "cpu" else dim
        symmetric_DD = ((matrix_DD + matrix_DD.T) / 2).to(device)
        # MKL reaches less than half of some processors' float32 arithmetic; oneDNN has bfloat16 products anyway.
        self._packed = dtype == torch.float32 and packable(dtype, device)
        self._blocks: list[tuple[int, int, Tensor]] = []
        for start in range(0, dim, width):
            stop = min(start + width, dim)
            block_Dd = symmetric_DD[:stop, start:stop].clone()
            block_Dd[:start] *= 2
            block_Dd = block_Dd.to(dtype)
            if self._packed:
                block_Dd = torch.ops.mkldnn._reorder_linear_weight(block_Dd.T.contiguous())
            self._blocks.append((start, stop, block_Dd))
        self._tile = TILE if device.type == "cpu" else 2**62

    def of(self, rows_nD: Tensor) -> Tensor:
        """Of rows of any type: float64, shape (n,)."""
        values_n = torch.zeros(len(rows_nD), dtype=torch.float64, device=rows_nD.device)
        for start in range(0, len(rows_nD), self._tile):
            span = slice(start, start + self._tile)
            values_n[span] = self._of_tile(rows_nD[span].to(self.dtype))
        return values_n

    def _of_tile(self, rows_nD: Tensor) -> Tensor:
        values_n = torch.zeros(len(rows_nD), dtype=torch.float64, device=rows_nD.device)
        for start, stop, block_Dd in self._blocks:
            products_nd = _product(rows_nD[:, :stop], block_Dd, self._packed)
            values_n += torch.linalg.vecdot(_summed(products_nd), _summed(rows_nD[:, start:stop]))
        return values_n


def along(rows_nD: Tensor, directions_Dr: Tensor, weights_r: Tensor) -> Tensor:
    """``sum of w (v . x)^2`` over few float32 directions v, of rows of any type: float64, shape (n,)."""
    values_n = torch.empty(len(rows_nD), dtype=torch.float64, device=rows_nD.device)
    directions_Dr, weights_r = directions_Dr.to(rows_nD.device), weights_r.to(rows_nD.device)
    tile = TILE if rows_nD.device.type == "cpu" else 2**62
    for start in range(0, len(rows_nD), tile):
        span = slice(start, start + tile)
        values_n[span] = (rows_nD[span].float() @ directions_Dr).square_() @ weights_r
    return values_n


def second_moment(rows_nD: Tensor, weighted_nD: Tensor) -> Tensor:
    """``sum of w x x'`` from rows x and w x, shape (D, D), in their type: symmetric to the last bit."""
    dim = rows_nD.shape[1]
    if rows_nD.device.type != "cpu":
        return weighted_nD.T @ rows_nD
    second_DD = rows_nD.new_zeros(dim, dim)
    for start in range(0, dim, WIDTH):
        stop = min(start + WIDTH, dim)
        block_dD = weighted_nD[:, start:stop].T @ rows_nD[:, :stop]
        second_DD[start:stop, :stop] = block_dD
        second_DD[:stop, start:stop] = block_dD.T
        own_dd = block_dD[:, start:]
        second_DD[start:stop, start:stop] = (own_dd + own_dd.T) / 2
    return second_DD


def product_into(out_nm: Tensor, rows_nD: Tensor, columns_mD: Tensor) -> Tensor:
    """Products of each two of these float32 rows, written into a tensor on the CPU, wherever the rows live; that tensor."""
    if rows_nD.device.type == "cpu":
        return torch.mm(rows_nD, columns_mD.T, out=out_nm)
    return out_nm.copy_(rows_nD @ columns_mD.T)


def _product(rows_nD: Tensor, block_Dd: Tensor, packed: bool) -> Tensor:
    if not packed:
        return rows_nD @ block_Dd
    product_nd: Tensor = torch.ops.mkldnn._linear_pointwise(rows_nD, block_Dd, None, "none", [], "none")
    return product_nd


def _summed(values: Tensor) -> Tensor:
    """In the type that products of two numbers are summed in."""
    return values if values.dtype == torch.float64 else values.float()
