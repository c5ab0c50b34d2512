"""Lazy greedy for facility location plus quality. Knows no learner, budget or normalisation.

The metric is the mean over all documents y of ``max over picks of max(0, <x_i, y>)``.

Shape suffixes: N documents, V references, B and b documents of two blocks, P picks, D dimensions.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from benchmarks.peers import Task

Floats = NDArray[np.float32]
BLOCK = 2048
FIRST = 64
REFERENCES = 4096


def dense_lazy_greedy(task: Task) -> NDArray[np.int64]:
    """Rows in the order of their picks: exact greedy up to float32 rounding. All similarities stay in memory.

    Only the upper triangle of the similarities is multiplied out.
    """
    rows_ND = task.embeddings_ND.astype(np.float32)
    similar_NN = np.empty((len(rows_ND), len(rows_ND)), dtype=np.float32)
    for rows, others, part_Bb in _triangle(rows_ND):
        similar_NN[rows, others] = part_Bb
        if rows != others:
            similar_NN[others, rows] = part_Bb.T
    return _picked(similar_NN, task.linear_N, task.scale / len(rows_ND), task.budget)


def sparse_lazy_greedy(task: Task, *, first: int = FIRST, references: int = REFERENCES) -> NDArray[np.int64]:
    """Rows in the order of their picks, in memory of about ``8 N^2 / first`` bytes.

    The first picks are those of lazy greedy on references drawn uniformly, so they are approximate where there are more
    documents than `references`. After them a similarity matters only where it exceeds what its reference already has:
    all of those, about ``N / first`` a document, are kept out of one pass over the upper triangle. From there on every
    pick is exact greedy's, up to float32 rounding.
    """
    rows_ND, linear_N = task.embeddings_ND.astype(np.float32), task.linear_N
    num_documents, first = len(rows_ND), min(first, task.budget)
    weight = task.scale / num_documents
    drawn = np.random.default_rng(0).permutation(num_documents)[:references]
    sampled_NV = rows_ND @ rows_ND[np.sort(drawn)].T
    picks = _picked(sampled_NV, linear_N, task.scale / sampled_NV.shape[1], first)
    del sampled_NV
    covered_N = np.maximum(rows_ND @ rows_ND[picks].T, 0).max(axis=1)
    lists = _exceeding(rows_ND, covered_N)
    starts, columns, values = lists.indptr, lists.indices, lists.data

    def gain(row: int) -> float:
        places = slice(starts[row], starts[row + 1])
        above = values[places] - covered_N[columns[places]]
        return float(linear_N[row]) + weight * float(np.maximum(above, 0, out=above).sum())

    def cover(row: int) -> None:
        places = slice(starts[row], starts[row + 1])
        covered_N[columns[places]] = np.maximum(covered_N[columns[places]], values[places])

    left = np.setdiff1d(np.arange(num_documents), picks)
    # Nothing is known of any gain: each is computed when its turn comes.
    return np.concatenate(
        [picks, _lazy({int(row): np.inf for row in left}, task.budget - first, gain, cover)]
    )


def _picked(
    similar_NV: Floats, linear_N: NDArray[np.float64], weight: float, budget: int
) -> NDArray[np.int64]:
    covered_V = np.zeros(similar_NV.shape[1], dtype=np.float32)
    above_V = np.empty_like(covered_V)

    def gain(row: int) -> float:
        np.subtract(similar_NV[row], covered_V, out=above_V)
        return float(linear_N[row]) + weight * float(np.maximum(above_V, 0, out=above_V).sum())

    def cover(row: int) -> None:
        np.maximum(covered_V, similar_NV[row], out=covered_V)

    return _lazy(dict.fromkeys(range(len(similar_NV)), np.inf), budget, gain, cover)


def _lazy(
    bounds: dict[int, float], budget: int, gain: Callable[[int], float], cover: Callable[[int], None]
) -> NDArray[np.int64]:
    """Minoux's greedy: gains only fall, so an old one bounds the new one. The first of equals is picked."""
    heap = [(-bound, row, -1) for row, bound in bounds.items()]
    heapq.heapify(heap)
    picks: list[int] = []
    while len(picks) < budget:
        _, row, known = heap[0]
        if known == len(picks):
            heapq.heappop(heap)
            picks.append(row)
            cover(row)
        else:
            heapq.heapreplace(heap, (-gain(row), row, len(picks)))
    return np.array(picks, dtype=np.int64)


def _triangle(rows_ND: Floats) -> Iterator[tuple[slice, slice, Floats]]:
    """Products of two blocks, each pair of blocks once."""
    blocks = [slice(start, start + BLOCK) for start in range(0, len(rows_ND), BLOCK)]
    for place, rows in enumerate(blocks):
        for others in blocks[place:]:
            yield rows, others, rows_ND[rows] @ rows_ND[others].T


def _exceeding(rows_ND: Floats, covered_N: Floats) -> csr_array:
    """A row a document: its similarities above what covers their references."""
    rows, columns, values = [], [], []
    for left, right, part_Bb in _triangle(rows_ND):
        sides = (
            [(left, right, part_Bb)] if left == right else [(left, right, part_Bb), (right, left, part_Bb.T)]
        )
        for mine, others, products in sides:
            row, column = np.nonzero(products > covered_N[others])
            rows.append((row + mine.start).astype(np.int32))
            columns.append((column + others.start).astype(np.int32))
            values.append(products[row, column])
    entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
    return csr_array(coo_array(entries, shape=(len(rows_ND), len(rows_ND))))
