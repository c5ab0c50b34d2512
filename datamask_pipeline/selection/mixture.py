"""The learner for small blocks by metrics of moments, coverage and metrics along a graph, some of these at once: greedy and
exchanges by exact models of all.

Shape suffixes: N documents, D embedding dimensions, R references, C of a chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from datamask_pipeline.diversity.base import CoverageMetric
from datamask_pipeline.diversity.coverage_swaps import OF_A_MOVE, READ_AGAIN, CoverageSwaps, Similarities
from datamask_pipeline.diversity.moments import MomentMetric, Moments
from datamask_pipeline.diversity.pair_graph import GraphSwaps, PairGraph
from datamask_pipeline.diversity.swap_models import Places, SummedSwaps, SwapModel
from datamask_pipeline.products import product_into
from datamask_pipeline.selection.facility.exchanges import CHUNK_ROWS, MOST_SIMILARITIES
from datamask_pipeline.selection.marginal_swaps import (
    batch_of,
    choose_by_marginal_swaps,
    exchanged_by_marginals,
)
from datamask_pipeline.selection.moments.exchanges import Exchanges, SearchWork
from datamask_pipeline.selection.moments.search import Best, search_on
from datamask_pipeline.selection.objective import MomentObjective, Term
from datamask_pipeline.selection.policies.datamask import DataMaskConfig
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.rewards import marginals, rewards
from datamask_pipeline.selection.solution import Solution

WORK = SearchWork(restarts=1.2e9, walks=1e9, kicks=8e8)
"""Kicks find most for their time; of nine documents tabu searches do."""


@dataclass(frozen=True, kw_only=True)
class MixtureObjective(MomentObjective):
    """The objective of metrics of several of these kinds, as exchanges ask it.

    Attributes:
        similar: Of each coverage term its weight in the diversity part and the similarities of references to documents.
        joined: Of each term along a graph the same weight, and the similarities of documents that share an edge.
    """

    similar: Mapping[str, tuple[float, Similarities]]
    joined: Mapping[str, tuple[float, Similarities]]

    @classmethod
    def of(cls, problem: Problem) -> MixtureObjective | None:
        """That of a block.

        None where a metric is of another kind, or all are of one, the block too large, or the budget one in tokens.
        """
        terms, size = problem.objective.terms, problem.num_rows
        coverage = [(term, term.metric) for term in terms if isinstance(term.metric, CoverageMetric)]
        along_graphs = [(term, term.metric) for term in terms if isinstance(term.metric, PairGraph)]
        of_moments = [term for term in terms if isinstance(term.metric, MomentMetric)]
        kinds = [len(kind) for kind in (coverage, along_graphs, of_moments) if kind]
        mixed = len(kinds) > 1 and sum(kinds) == len(terms)
        if not mixed or problem.budget.tokens or problem.held is not None:
            return None
        if along_graphs and size**2 > MOST_SIMILARITIES:
            return None
        similar: dict[str, tuple[float, Similarities]] = {}
        for term, metric in coverage:
            references_R = metric.references(size)
            if size * len(references_R) > MOST_SIMILARITIES:
                return None
            similar[term.name] = term.scale, _similarities(problem, references_R)
        joined = {
            term.name: (term.scale, metric.graph(problem.rows.everything()).joined())
            for term, metric in along_graphs
        }
        return cls(objective=problem.objective, similar=similar, joined=joined)

    @property
    def _terms(self) -> tuple[tuple[Term, MomentMetric], ...]:
        pairs = ((term, term.metric) for term in self.objective.terms)
        return tuple((term, metric) for term, metric in pairs if isinstance(metric, MomentMetric))

    @property
    def concave(self) -> bool:
        return False

    @property
    def quadratic(self) -> bool:
        return False

    def reordered(self, order_N: Tensor) -> MixtureObjective:
        similar = {
            name: (scale, np.ascontiguousarray(similar_RN[:, order_N.numpy()]))
            for name, (scale, similar_RN) in self.similar.items()
        }
        joined = {
            name: (scale, joined_NN[np.ix_(order_N.numpy(), order_N.numpy())])
            for name, (scale, joined_NN) in self.joined.items()
        }
        return replace(super().reordered(order_N), similar=similar, joined=joined)

    def exchange_model(self, moments: Moments, rows_ND: Tensor, inside_I: Places | None = None) -> SwapModel:
        return self._beside(super().exchange_model(moments, rows_ND, inside_I), inside_I, moments.count)

    def filling_model(self, held: Moments, added: int, rows_ND: Tensor) -> SwapModel:
        return self._beside(super().filling_model(held, added, rows_ND), np.empty(0, np.int64), added)

    def _beside(self, of_moments: SwapModel, inside_I: Places | None, count: float) -> SwapModel:
        assert inside_I is not None, "nothing is held"
        parts = [(1.0, of_moments)]
        for scale, similar_RN in self.similar.values():
            worth = scale * (1 - self.objective.lamb) / len(similar_RN)
            parts.append((1.0, CoverageSwaps(similar_RN, similar_RN.T, inside_I, worth)))
        for scale, joined_NN in self.joined.values():
            parts.append((scale * (1 - self.objective.lamb), GraphSwaps(joined_NN, inside_I, count)))
        return SummedSwaps(np.zeros(len(self.objective.quality_N)), parts)

    def work(self, num_rows: int, count: float, dim: int) -> float:
        read = [READ_AGAIN * num_rows * len(similar_RN) / count for _, similar_RN in self.similar.values()]
        of_moments = super().work(num_rows, count, dim) if self._terms else 0.0
        return max(of_moments, OF_A_MOVE + sum(read))


def choose_mixture(problem: Problem, mixture: MixtureObjective, config: DataMaskConfig) -> Solution:
    """What swaps of whole sets end at, greedy and the best quality, after exchanges until none gains, and again from drawn
    masks and kicks of the best.
    """
    exchanges = Exchanges.of(problem.statistics, mixture, problem.budget, WORK)
    solution = choose_by_marginal_swaps(problem, config, longer=exchanges is None)
    if exchanges is None:
        return exchanged_by_marginals(problem, solution, config)
    batch = batch_of(problem)
    known = Best(problem.budget, lambda mask_N: float(rewards(batch, mask_N[None])[0]))
    known.offer(solution.mask_N)
    for start_N in (solution.mask_N, *exchanges.starts()):
        known.offer(exchanges.improved(start_N))
    search_on(exchanges, known, config)
    problem.report({"step": solution.notes["steps"], "num_steps": config.num_steps, "objective": known.value})
    moved = int((known.mask_N & ~solution.mask_N).sum())
    return replace(
        solution,
        mask_N=known.mask_N,
        scores_N=marginals(batch, known.mask_N),
        notes=solution.notes | {"swaps": solution.notes["swaps"] + moved},
    )


def _similarities(problem: Problem, references_R: Tensor) -> Similarities:
    rows_ND = problem.rows.everything().float()
    references_RD = rows_ND[references_R]
    similar_RN = np.empty((len(references_R), len(rows_ND)), dtype=np.float32)

    def work(start: int) -> None:
        some_CN = torch.from_numpy(similar_RN[start : start + CHUNK_ROWS])
        product_into(some_CN, references_RD[start : start + CHUNK_ROWS], rows_ND).clamp_(min=0)

    for _ in problem.workers.map(work, range(0, len(references_R), CHUNK_ROWS)):
        pass
    return similar_RN
