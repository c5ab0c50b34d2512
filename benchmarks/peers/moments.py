"""Greedy for quadratic moment metrics, made fast by blocks and bounds. Knows no learner, budget or normalisation.

At a fixed number of documents the objective is ``sum of linear_i - weight * sum over ordered pairs of k(x_i, x_j)``,
where k is the squared product, the pairs i = j included (DiSF_uncentred), or the product without them (Pair_simi). Each
pick is a document of the largest exact gain, up to float32 rounding: that no other has a larger one is proved by bounds.

Shape suffixes: N documents, B documents of a block, E of those the candidates for picks, P picks, D dimensions.

A gain falls by ``2 weight h_i`` with ``h_i = sum over picks of k(x_i, x_j)``, and h is a form of one statistic: ``x'Cx``
with ``C = sum x_j x_j'``, or ``x's`` with ``s = sum x_j``. Where the statistic goes from T to T', ``T' = beta T + R``, so
that ``h' >= beta h - (what R can take from any document)``: a lower bound of every h for the price of one vector. Only a
block of those that lead by their bounds is computed exactly, by one product, and from it picks are made until one that
is not in the block may be better.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import Task

Floats = NDArray[np.float32]
LEAST_GAIN = 1e-9


@dataclass(frozen=True)
class Products:
    """Pair_simi: k is the product; the statistic is the sum of the picks.

    Attributes:
        block: Documents whose gains are kept exact.
        candidates: Of a block, those whose products with each other are made at once.
        monotone: Whether h never falls.
    """

    block: int = 2048
    candidates: int = 256
    monotone: bool = False

    def start(self, dimensions: int) -> Floats:
        return np.zeros(dimensions, dtype=np.float32)

    def of(self, picks_PD: Floats) -> Floats:
        return picks_PD.sum(0)

    def sums(self, rows_BD: Floats, statistic: Floats) -> Floats:
        """h of some rows."""
        return rows_BD @ statistic

    def over(self, rows_BD: Floats, picks_PD: Floats) -> Floats:
        """What picks add to h."""
        return rows_BD @ picks_PD.sum(0)

    def kernel(self, products: Floats) -> Floats:
        return products

    def radius(self, squared_N: Floats) -> Floats:
        """What a unit of `least` takes from a document."""
        return np.sqrt(squared_N)

    def itself(self, squared_N: Floats) -> Floats:
        return np.zeros_like(squared_N)

    def least(self, residual: Floats) -> float:
        return float(np.linalg.norm(residual))


@dataclass(frozen=True)
class SquaredProducts:
    """DiSF_uncentred: k is the squared product; the statistic is the second moment of the picks."""

    block: int = 8192
    candidates: int = 512
    monotone: bool = True

    def start(self, dimensions: int) -> Floats:
        return np.zeros((dimensions, dimensions), dtype=np.float32)

    def of(self, picks_PD: Floats) -> Floats:
        return picks_PD.T @ picks_PD

    def sums(self, rows_BD: Floats, statistic: Floats) -> Floats:
        sums_B: Floats = np.einsum("bd,bd->b", rows_BD @ statistic, rows_BD)
        return sums_B

    def over(self, rows_BD: Floats, picks_PD: Floats) -> Floats:
        products_BP = rows_BD @ picks_PD.T
        return np.einsum("bp,bp->b", products_BP, products_BP)

    def kernel(self, products: Floats) -> Floats:
        return np.square(products, out=products)

    def radius(self, squared_N: Floats) -> Floats:
        return squared_N

    def itself(self, squared_N: Floats) -> Floats:
        return np.square(squared_N)

    def least(self, residual: Floats) -> float:
        """At least its spectral norm: the 16th root of the sum of the 16th powers of its eigenvalues."""
        scale = float(np.linalg.norm(residual))
        if scale == 0:
            return 0.0
        power_DD = residual / np.float32(scale)
        for _ in range(3):
            power_DD = power_DD @ power_DD
        return scale * float(np.linalg.norm(power_DD)) ** 0.125 * (1 + 1e-4)


PAIR_SIMI, DISF_UNCENTRED = Products(), SquaredProducts()


def pair_simi(task: Task) -> NDArray[np.int64]:
    """`block_lazy_greedy` for Pair_simi."""
    return block_lazy_greedy(task, PAIR_SIMI, task.scale / (task.budget * (task.budget - 1)))


def disf_uncentred(task: Task) -> NDArray[np.int64]:
    """`block_lazy_greedy` for DiSF_uncentred."""
    return block_lazy_greedy(task, DISF_UNCENTRED, task.scale / task.budget**2)


def pair_simi_with_exchanges(task: Task) -> NDArray[np.int64]:
    """`pair_simi`, and then exchanges."""
    return _exchanged(task, pair_simi(task), PAIR_SIMI, task.scale / (task.budget * (task.budget - 1)))


def disf_uncentred_with_exchanges(task: Task) -> NDArray[np.int64]:
    """`disf_uncentred`, and then exchanges."""
    return _exchanged(task, disf_uncentred(task), DISF_UNCENTRED, task.scale / task.budget**2)


def _exchanged(
    task: Task, picks: NDArray[np.int64], form: Products | SquaredProducts, weight: float
) -> NDArray[np.int64]:
    """The best exchange of any pick for any other document, until none gains."""
    rows_ND = task.embeddings_ND.astype(np.float32)
    picks = picks.copy()
    squared_N = np.einsum("nd,nd->n", rows_ND, rows_ND)
    own_N = form.itself(squared_N).astype(np.float64)
    slack = 0.0 if own_N.any() else 2 * weight * float(squared_N.max())
    kernel_NK = form.kernel(rows_ND @ rows_ND[picks].T).astype(np.float64)
    sums_N = kernel_NK.sum(1)
    sums_N[picks] -= kernel_NK[picks, np.arange(len(picks))] - own_N[picks]
    outside_N = np.ones(len(rows_ND), dtype=bool)
    outside_N[picks] = False
    while True:
        # With every document's own term it is concave: no exchange gains more than its tangent says, most need no look.
        tangent_N = task.linear_N - 2 * weight * sums_N
        into_n = np.flatnonzero(outside_N & (tangent_N + slack > tangent_N[picks].min()))
        if not len(into_n):
            return picks
        out_k = np.flatnonzero(tangent_N[picks] < tangent_N[into_n].max() + slack)
        joins_n, leaves_k = tangent_N - weight * own_N, tangent_N + weight * own_N
        gains = (
            joins_n[into_n][:, None] - leaves_k[picks[out_k]] + 2 * weight * kernel_NK[np.ix_(into_n, out_k)]
        )
        row, column = divmod(int(gains.argmax()), len(out_k))
        if gains[row, column] <= LEAST_GAIN:
            return picks
        into, place = int(into_n[row]), int(out_k[column])
        out = picks[place]
        outside_N[[into, out]] = False, True
        column_N = form.kernel(rows_ND @ rows_ND[into]).astype(np.float64)
        sums_N += column_N - kernel_NK[:, place]
        sums_N[into] -= column_N[into] - own_N[into]
        sums_N[out] += kernel_NK[out, place] - own_N[out]
        picks[place], kernel_NK[:, place] = into, column_N


def block_lazy_greedy(
    task: Task, form: Products | SquaredProducts, weight: float, *, block: int | None = None
) -> NDArray[np.int64]:
    """Rows in the order of their picks, shape (budget,)."""
    rows_ND, linear_N, budget = task.embeddings_ND.astype(np.float32), task.linear_N, task.budget
    block = min(block or form.block, len(rows_ND))
    squared_N = np.einsum("nd,nd->n", rows_ND, rows_ND)
    radius_N, double = form.radius(squared_N), np.float32(2 * weight)
    offset_N = (linear_N - weight * form.itself(squared_N)).astype(np.float32)
    least_N = np.zeros_like(squared_N)  # lower bounds of h; exact inside the block
    inside_N = np.zeros(len(rows_ND), dtype=bool)
    statistic = known = form.start(rows_ND.shape[1])  # `known`: what the bounds rest on
    rows_B = np.empty(0, dtype=np.int64)
    block_BD = rows_ND[:0]
    picks: list[int] = []
    while len(picks) < budget:
        bounds_N = offset_N - double * least_N
        best = bounds_N[rows_B].max(initial=-np.inf)
        outside = bounds_N.max(initial=-np.inf, where=~inside_N)
        if known is not statistic and (best < outside or not form.monotone):
            beta, residual = _continued(known, statistic)
            taken_N = least_N * np.float32(beta) - np.float32(form.least(residual)) * radius_N
            taken_N = np.maximum(least_N, taken_N) if form.monotone else taken_N
            taken_N[rows_B] = least_N[rows_B]
            least_N, known = taken_N, statistic
            continue
        if best < outside:
            inside_N[rows_B] = False
            rows_B = np.argpartition(bounds_N, len(bounds_N) - block)[-block:]
            rows_B = rows_B[np.isfinite(bounds_N[rows_B])]
            block_BD = rows_ND[rows_B]
            inside_N[rows_B] = True
            least_N[rows_B] = form.sums(block_BD, statistic)
            bounds_N[rows_B] = offset_N[rows_B] - double * least_N[rows_B]
            outside = bounds_N.max(initial=-np.inf, where=~inside_N)
        places_E = np.argsort(-bounds_N[rows_B], kind="stable")[: form.candidates + 1]
        if len(places_E) > form.candidates:
            outside = max(outside, bounds_N[rows_B[places_E[-1]]])
            places_E = places_E[:-1]
        places_E = places_E[bounds_N[rows_B[places_E]] >= outside]
        if not len(places_E):
            continue  # the new block's own sums were larger than their bounds
        others_N = np.isfinite(offset_N)
        others_N[rows_B[places_E]] = False
        places_P = _picks(
            block_BD[places_E],
            bounds_N[rows_B[places_E]],
            outside,
            budget - len(picks),
            double,
            form,
            statistic,
            float(least_N.min(initial=0.0, where=others_N)),
            float(radius_N.max()),
        )
        rows_P = rows_B[places_E[places_P]]
        picks += rows_P.tolist()
        offset_N[rows_P] = -np.inf
        least_N[rows_B] += form.over(block_BD, rows_ND[rows_P])
        statistic = statistic + form.of(rows_ND[rows_P])
    return np.array(picks, dtype=np.int64)


def _picks(
    rows_ED: Floats,
    gains_E: Floats,
    outside: float,
    most: int,
    double: np.float32,
    form: Products | SquaredProducts,
    statistic: Floats,
    lowest: float,
    radius: float,
) -> list[int]:
    """Greedy among candidates until one that is none of them may be better."""
    falls_EE = form.kernel(rows_ED @ rows_ED.T) * double
    gains_E, now = gains_E.copy(), statistic.copy()
    picks: list[int] = []
    ceiling = outside
    while len(picks) < most:
        place = int(gains_E.argmax())
        if gains_E[place] < ceiling:
            break
        picks.append(place)
        gains_E -= falls_EE[place]
        gains_E[place] = -np.inf
        if not form.monotone:
            # Products may be negative, so that gains outside may rise: by no more than this.
            now += rows_ED[place]
            beta, residual = _continued(statistic, now)
            rise = form.least(residual) * radius - (beta - 1) * min(lowest, 0.0)
            ceiling = outside + float(double) * rise
    return picks


def _continued(before: Floats, after: Floats) -> tuple[float, Floats]:
    """A factor of at least 1, and what the statistic is beside that many times its earlier self."""
    size = float(np.vdot(before, before))
    beta = max(1.0, float(np.vdot(before, after)) / size) if size else 1.0
    return beta, after - np.float32(beta) * before
