"""The objective along a graph, and its bound. Knows no mask's making.

Shape suffixes: N documents, E edges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from datamask_pipeline.diversity.pair_graph import PairGraph, SimilarityGraph
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.problem import Problem

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]
SHORTER, IN_VAIN, SHORTEST = 0.7, 20, 0.03
"""Steps towards a smaller bound get this much shorter where so many of them brought none, and are given up where they are
this short."""


@dataclass(frozen=True, kw_only=True)
class GraphObjective:
    """``offset + linear'm - weight / 2 m'Am``, where A holds the similarities of documents that share an edge.

    Attributes:
        linear_N: What each document's quality adds.
        weight: What a unit of similarity to a selected neighbour takes from a document.
        offset: What every mask has.
    """

    graph: SimilarityGraph
    linear_N: Numbers
    weight: float
    offset: float

    @classmethod
    def of(cls, problem: Problem) -> GraphObjective | None:
        """That of a problem whose one metric is along a graph and whose budget counts documents; else none."""
        objective, budget = problem.objective, problem.budget
        term, *others = objective.terms
        if others or not isinstance(term.metric, PairGraph) or budget.tokens:
            return None
        count = float(sum(budget.limits))
        return cls(
            graph=term.metric.graph(problem.rows.everything()),
            linear_N=objective.quality_N.numpy() * (objective.lamb / count),
            weight=2 * (1 - objective.lamb) * term.scale / count,
            offset=(1 - objective.lamb) * term.offset,
        )

    @cached_property
    def taken_NN(self) -> csr_array:
        """What each document takes from each neighbour where both are selected."""
        graph = self.graph
        ends_e = np.concatenate([graph.left_E, graph.right_E])
        others_e = np.concatenate([graph.right_E, graph.left_E])
        taken_e = self.weight * np.concatenate([graph.similarity_E] * 2)
        return csr_array((taken_e, (ends_e, others_e)), shape=(graph.num_rows, graph.num_rows))

    def marginals(self, mask_N: Mask) -> Numbers:
        """What each document adds to a mask, or takes from it where it leaves, others as they are."""
        found: Numbers = self.linear_N - self.weight * self.graph.sums(mask_N.astype(np.float64))
        return found

    def value(self, mask_N: Mask) -> float:
        """The objective of a mask."""
        return self.offset + float((self.linear_N + self.marginals(mask_N))[mask_N].sum()) / 2

    def bound(self, shares_N: Numbers, budget: Budget) -> float:
        """No mask is worth more, whatever these shares are.

        Where two documents share an edge, ``m_i m_j >= y (m_i + m_j - 1)`` for every y from 0 to 1, here the product of
        their shares: what is left is linear in the mask.

        Args:
            shares_N: From 0 to 1.
            budget: Of documents.
        """
        return self._bound(shares_N, budget)[0]

    def _bound(self, shares_N: Numbers, budget: Budget) -> tuple[float, Numbers]:
        """And a derivative by each share."""
        sums_N = self.graph.sums(shares_N)
        scores_N = self.linear_N - self.weight * shares_N * sums_N
        most_N = budget.prefix(torch.from_numpy(scores_N)).numpy().astype(np.float64)
        bound = self.offset + float(scores_N @ most_N) + self.weight / 2 * float(shares_N @ sums_N)
        slope_N = self.weight * ((1 - most_N) * sums_N - self.graph.sums(shares_N * most_N))
        return bound, slope_N

    def smallest_bound(
        self,
        shares_N: Numbers,
        budget: Budget,
        value: float,
        num_steps: int,
        on_step: Callable[[int, float], bool],
    ) -> tuple[float, Numbers]:
        """The smallest bound on the way down from some shares, and its shares.

        Args:
            shares_N: Where to start.
            budget: Of documents.
            value: What a mask reaches.
            num_steps: At most so many.
            on_step: Gets the step and the smallest bound so far; true ends it.

        Source: Polyak 1969 (steps of subgradients, as long as the distance from a value that is known).
        """
        least, best_N, length, since = np.inf, shares_N, 1.0, 0
        for step in range(num_steps + 1):
            bound, slope_N = self._bound(shares_N, budget)
            since += 1
            if bound < least:
                least, best_N, since = bound, shares_N, 0
            if on_step(step, least):
                break
            if since == IN_VAIN:
                length, since, shares_N = SHORTER * length, 0, best_N
                if length < SHORTEST:
                    break
                continue
            squared = float(slope_N @ slope_N)
            if squared == 0:
                break
            shares_N = np.clip(shares_N - length * (bound - value) / squared * slope_N, 0.0, 1.0)
        return least, best_N
