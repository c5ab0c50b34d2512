"""What a mask is worth, in float32 products summed in float64, and what each document adds. Knows no learner.

Shape suffixes: N documents.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from datamask_pipeline.diversity.base import CoverageMetric, checked_marginals, checked_values
from datamask_pipeline.diversity.coverage import value_and_marginals
from datamask_pipeline.diversity.moments import MomentMetric, Moments
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.objective import Term
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.solution import Solution


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A mask's objective with its parts, and each document's marginals (float64, shape (N,))."""

    value: float
    quality: float
    diversity: float
    raw: dict[str, float]
    quality_N: Tensor
    diversity_N: Tensor
    moments: Moments | None
    """Those of the mask and of what is held, where a metric is one of moments."""


def evaluate(problem: Problem, solution: Solution, moments: Moments | None = None) -> Evaluation:
    """Value and marginals at the mask, whose moments may be known.

    Raises:
        ConfigurationError: a metric is not finite at the mask.
    """
    if solution.evaluation is not None:
        return solution.evaluation
    objective, mask_N = problem.objective, solution.mask_N
    raw: dict[str, float] = {}
    diversity_N = torch.zeros(problem.num_rows, dtype=torch.float64)
    moment_terms = [term for term in objective.terms if isinstance(term.metric, MomentMetric)]
    if moments is None and moment_terms:
        moments = problem.statistics.moments(mask_N)
    if moments is not None:
        diversity_N += _moment_parts(problem, moment_terms, mask_N, moments, raw)
    for term in objective.terms:
        if term not in moment_terms:
            value, marginals_N = _other_parts(problem, term, solution)
            raw[term.name] = value
            diversity_N += term.scale * marginals_N
    for name, value in raw.items():
        if value != value or abs(value) == float("inf"):
            raise ConfigurationError(f"diversity metric {name!r} is {value} at the selected mask")
    quality, diversity = objective.quality(mask_N), objective.diversity(raw)
    return Evaluation(
        value=objective.combine(quality, diversity),
        quality=quality,
        diversity=diversity,
        raw=raw,
        quality_N=objective.quality_N * (objective.lamb / objective.count(mask_N)),
        diversity_N=diversity_N * (1 - objective.lamb),
        moments=moments,
    )


def _moment_parts(
    problem: Problem, terms: list[Term], mask_N: Tensor, moments: Moments, raw: dict[str, float]
) -> Tensor:
    statistics = problem.statistics
    total_N = torch.zeros(problem.num_rows, dtype=torch.float64)
    for term in terms:
        metric = term.metric
        assert isinstance(metric, MomentMetric), "filtered by the caller"
        raw[term.name] = metric.value(moments)
        total_N += term.scale * statistics.marginals(metric.marginals_at(moments), mask_N)
    return total_N


def _other_parts(problem: Problem, term: Term, solution: Solution) -> tuple[float, Tensor]:
    """The raw value and marginals of a metric that is none of moments; black boxes have no marginals: NaN."""
    if term.name in solution.raw and solution.diversity_N is not None:
        return solution.raw[term.name], solution.diversity_N
    embeddings_ND = problem.rows.everything()
    if isinstance(term.metric, CoverageMetric):
        references_R = term.metric.references(problem.num_rows)
        return value_and_marginals(embeddings_ND, references_R, solution.mask_N, problem.workers.map)
    mask_N = solution.mask_N
    value = float(checked_values(term.metric, embeddings_ND, mask_N[None])[0])
    marginals_N = checked_marginals(term.metric, embeddings_ND, mask_N)
    if marginals_N is None:
        marginals_N = torch.full((problem.num_rows,), torch.nan, dtype=torch.float64)
    return value, marginals_N
