"""The best learner we have for each kind of metric. Knows no input format and no report.

* Moment metrics: ``selection.moments``.
* One coverage metric: the solver of ``selection.facility``.
* One metric along a graph: ``selection.graph``.
* Metrics of several of these kinds: ``selection.mixture``, where a block is small; else, as any mixture whose metrics all
  have marginals, swaps by these.
* Anything else, a black box: the best of all masks where these are few; else the paper's learner as it is by default, and
  exchanges by values. To set that learner, name policy ``policy_gradient``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pydantic

from datamask_pipeline.selection.policies.base import SelectionPolicy
from datamask_pipeline.selection.policies.policy_gradient import PolicyGradientPolicy
from datamask_pipeline.selection.reasons import BY_MARGINALS
from datamask_pipeline.settings import Settings

if TYPE_CHECKING:
    from datamask_pipeline.selection.problem import Problem
    from datamask_pipeline.selection.solution import Solution


class DataMaskConfig(Settings):
    """The learner of the relaxed mask and its refinement."""

    num_steps: int = pydantic.Field(
        40,
        ge=1,
        description="Most gradient steps of the learner on the whole block, or on one of the bands of a large one.",
    )
    gap_tolerance: float = pydantic.Field(
        0.0005,
        ge=0,
        description="Stop when the certified gap, a share of the distance from random, is below.",
    )
    num_swap_rounds: int = pydantic.Field(
        12, ge=0, description="Most rounds of pairwise swaps after rounding."
    )
    num_restarts: int = pydantic.Field(
        32,
        ge=0,
        description="Most times that exchanges of a mask of few documents begin anew, from a drawn document or mask; fewer "
        "where the best is found again and again, or where each takes long. Of large mixtures with Facility, and of budgets "
        "in tokens, at most 32. For Pair_simi and DiSF_uncentred also how many tabu searches run side by side, at most 16, "
        "and for Pair_graph a quarter of how many masks are annealed, fewer of many documents.",
    )
    num_kicks: int = pydantic.Field(
        64,
        ge=0,
        description="Most times that a mask of few documents is exchanged in part at random and improved again, and most "
        "turns of tabu searches.",
    )
    sample_documents: int = pydantic.Field(
        8_192, ge=256, description="Documents whose statistics warm the learner up in larger blocks."
    )


class DataMaskPolicy(SelectionPolicy):
    """Choose the learner by the metrics; see the module."""

    name = "datamask"
    decision = BY_MARGINALS
    Config = DataMaskConfig
    config: DataMaskConfig

    def choose(self, problem: Problem) -> Solution:
        solution = _choose_by_metrics(problem, self.config)
        if not problem.budget.tokens:
            return solution
        from datamask_pipeline.selection.marginal_swaps import exchanged_in_tokens

        return exchanged_in_tokens(problem, _no_worse_than_quality(problem, solution), self.config)


def _choose_by_metrics(problem: Problem, config: DataMaskConfig) -> Solution:
    from datamask_pipeline.diversity.base import CoverageMetric
    from datamask_pipeline.diversity.pair_graph import PairGraph
    from datamask_pipeline.selection.marginal_swaps import (
        best_of_all,
        can_swap_by_marginals,
        choose_by_marginal_swaps,
        exchanged_by_marginals,
        exchanged_by_values,
        swapped_from_weights,
    )
    from datamask_pipeline.selection.mixture import MixtureObjective, choose_mixture
    from datamask_pipeline.selection.mixture_bound import certified, covering

    terms = problem.objective.terms
    if problem.objective.moment_terms is not None:
        from datamask_pipeline.selection.moments.choose import choose_by_moments

        return choose_by_moments(problem, config)
    if len(terms) == 1 and isinstance(terms[0].metric, CoverageMetric):
        from datamask_pipeline.selection.facility.choose import choose_by_coverage

        return choose_by_coverage(problem, config)
    if isinstance(terms[0].metric, PairGraph):
        from datamask_pipeline.selection.graph.choose import choose_on_graph
        from datamask_pipeline.selection.graph.objective import GraphObjective

        if (on_graph := GraphObjective.of(problem)) is not None:
            return choose_on_graph(problem, on_graph, config)
    if can_swap_by_marginals(problem):
        if (mixture := MixtureObjective.of(problem)) is not None and config.num_swap_rounds:
            return certified(problem, choose_mixture(problem, mixture, config), config)
        solution = choose_by_marginal_swaps(problem, config, longer=covering(problem) is None)
        solution = certified(problem, solution, config)
        if solution.tangent_N is not None:
            solution = swapped_from_weights(problem, solution, config)
        return exchanged_by_marginals(problem, solution, config)
    if (best := best_of_all(problem)) is not None:
        return best
    return exchanged_by_values(problem, PolicyGradientPolicy().choose(problem), config)


def _no_worse_than_quality(problem: Problem, solution: Solution) -> Solution:
    """The solution, or the best documents by quality: in tokens the learners' steps follow no mean of quality."""
    from datamask_pipeline.selection.evaluation import evaluate
    from datamask_pipeline.selection.solution import Solution

    quality_N = problem.objective.quality_N
    plain = Solution(
        mask_N=problem.budget.best(quality_N, exact=True),
        scores_N=quality_N.clone(),
        method=solution.method,
        notes={"best_by_quality": True},
        bound=solution.bound,
        tangent_N=solution.tangent_N,
        dual_N=solution.dual_N,
    )
    return max((solution, plain), key=lambda found: evaluate(problem, found).value)


POLICY = DataMaskPolicy
