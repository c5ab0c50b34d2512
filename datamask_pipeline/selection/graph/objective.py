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
from datamask_pipeline.selection.graph.cliques import Cliques, Rows
from datamask_pipeline.selection.problem import Problem

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]
SHORTER, IN_VAIN, SHORTEST = 0.8, 30, 0.003
"""Steps towards a smaller bound get this much shorter where so many of them brought none, and are given up where they are
this short."""
KEPT = 0.8
"""Of a step's direction, what the next one keeps."""


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

    def bound(self, cliques: Cliques, slopes_C: Numbers, budget: Budget) -> float:
        """No mask is worth more, whatever the slopes are, if cliques' weights do not exceed the similarities they are of.

        Args:
            cliques: Of the graph.
            slopes_C: Not negative.
            budget: Of documents.
        """
        return self._bound(cliques, slopes_C, budget)[0]

    def most_above(self, above: tuple[Rows, Rows, Numbers], budget: Budget) -> float:
        """What a mask may be worth above a bound at most, where cliques weigh so much more than similarities.

        Args:
            above: Pairs of documents, and how much more cliques weigh than their similarity.
            budget: Of documents.
        """
        left_a, right_a, more_a = above
        ends_a, both_a = np.concatenate([left_a, right_a]), np.concatenate([more_a, more_a])
        shares_N = self.weight / 2 * np.bincount(ends_a, both_a, self.graph.num_rows)
        return budget.most(torch.from_numpy(shares_N))

    def _bound(self, cliques: Cliques, slopes_C: Numbers, budget: Budget) -> tuple[float, Numbers]:
        """And a derivative by each slope, for a weight of 1."""
        taken_C = self.weight * cliques.weight_C
        scores_N = self.linear_N - cliques.spread(taken_C * slopes_C, len(self.linear_N))
        most_N = budget.prefix(torch.from_numpy(scores_N)).numpy().astype(np.float64)
        conjugate_C, reached_C = cliques.conjugate(slopes_C)
        bound = self.offset + float(scores_N @ most_N) + float(taken_C @ conjugate_C)
        return bound, self.weight * (reached_C - cliques.counted(most_N))

    def slopes(self, cliques: Cliques, mask_N: Mask, below: float) -> Numbers:
        """So much below each clique's number in a mask; from a whole one to none below, they say what the mask has there."""
        return np.clip(cliques.counted(mask_N.astype(np.float64)) - below, 0.0, cliques.sizes_C - 1.0)

    def smallest_bound(
        self,
        cliques: Cliques,
        mask_N: Mask,
        budget: Budget,
        num_steps: int,
        on_step: Callable[[int, float], bool],
    ) -> tuple[float, Numbers]:
        """The smallest bound on the way down from the slopes of a mask, and its slopes.

        Args:
            cliques: Of the graph.
            mask_N: Where to start; its value is what steps aim at.
            budget: Of documents.
            num_steps: At most so many.
            on_step: Gets the step and the smallest bound so far; true ends it.

        Source: Polyak 1969 (steps of subgradients, as long as the distance from a value that is known), each step along a
        mean of the directions so far (Camerini, Fratta and Maffioli 1975), here scaled by the roots of the cliques' weights.
        """
        value, most_C = self.value(mask_N), cliques.sizes_C - 1.0
        # What is known at once may be a corner that no step leads out of: the walk goes back to its own best alone.
        at_once_C = self.slopes(cliques, mask_N, 1.0)
        at_once = self.bound(cliques, at_once_C, budget)
        slopes_C, length, since = self.slopes(cliques, mask_N, 0.5), 1.0, 0
        least, best_C, way_C = np.inf, slopes_C, None
        for step in range(num_steps + 1):
            bound, slope_C = self._bound(cliques, slopes_C, budget)
            since += 1
            if bound < least:
                least, best_C, since = bound, slopes_C, 0
            if on_step(step, min(least, at_once)):
                break
            if since == IN_VAIN:
                length, since, slopes_C, way_C = SHORTER * length, 0, best_C, None
                if length < SHORTEST:
                    break
                continue
            way_C = slope_C if way_C is None else KEPT * way_C + (1 - KEPT) * slope_C
            squared = float((cliques.weight_C * way_C) @ way_C)
            if squared == 0:
                break
            slopes_C = np.clip(slopes_C - length * (bound - value) / squared * way_C, 0.0, most_C)
        return (least, best_C) if least < at_once else (at_once, at_once_C)
