"""The affine maps that put every term on one scale. Knows no policy, and no random mask.

Shape suffixes: N documents.

For each quality score, 0 is its mean over random masks and 1 its mean over the best one: both exact. For each
diversity metric, 0 is its mean over uniformly random masks, by a closed form where the metric has one and otherwise
over a few of them, and 1 lies above it by what the metric alone gains over random on a sample of the block: a
stated proxy of the best value it reaches. Draws are the same for every seed: the scale is of the block and the budget,
and the weights of an objective mean the same whatever the seed. In blocks of few documents it is the same in whatever
order these stand, too. Every term is normalised, those of no weight too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from datamask_pipeline.diversity.base import DiversityMetric
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.families import POLICIES
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.full_masks import FullMasks
from datamask_pipeline.selection.given import Given
from datamask_pipeline.selection.moments.statistics import Statistics
from datamask_pipeline.selection.objective import Term
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.proxy import HALF_BIT, RESOLVED, proxy_gain

EQUAL = "all masks that the budget allows are worth the same"
"""Why a term may have no range although documents differ."""
RELATIVE_ZERO = 1e-9
"""Scores, which are float64, have no range where their best mean exceeds their mean by less than this share of either."""

Constants = dict[str, tuple[float, float]]


def quality_constants(scores: Mapping[str, Tensor], budget: Budget, given: Given | None = None) -> Constants:
    """(zero, one) of each quality score: its mean over random masks, its mean over the best one; with what is held."""
    constants = {name: (budget.mean(q_N), _best_mean(q_N, budget)) for name, q_N in scores.items()}
    return with_held(constants, budget.num_documents, given)


def _best_mean(scores_N: Tensor, budget: Budget) -> float:
    """The mean over the best mask; in tokens, where what is best first leaves room for many of the rest, a bound on any."""
    mean = float(scores_N[budget.best(scores_N, exact=True)].mean())
    if budget.tokens and not _has_range(budget.mean(scores_N), mean) and not budget.takes_everything:
        return FullMasks(budget.costs_N, budget.limits[0]).largest_mean(scores_N)
    return mean


def with_held(constants: Constants, added: float, given: Given | None) -> Constants:
    """The constants of quality where so many documents are added to what is held."""
    if given is None:
        return constants
    total = given.count + added
    return {
        name: ((given.quality[name] + added * zero) / total, (given.quality[name] + added * one) / total)
        for name, (zero, one) in constants.items()
    }


def held_quality(given: Given, weights: Mapping[str, float] | None, constants: Constants) -> float:
    """The sum of the normalised quality of what is held, as `combined_quality` is of each document."""
    sums = {
        name: torch.tensor(
            [total - given.count * constants[name][0] + constants[name][0]], dtype=torch.float64
        )
        for name, total in given.quality.items()
    }
    return float(combined_quality(sums, weights, constants))


def combined_quality(
    scores: Mapping[str, Tensor], weights: Mapping[str, float] | None, constants: Constants
) -> Tensor:
    """The weighted, normalised quality of each document; weights are divided by their sum.

    Raises:
        ConfigurationError: weights for other scores than those given, or not positive.
    """
    weights = dict(weights) if weights is not None else dict.fromkeys(scores, 1.0)
    if set(weights) != set(scores):
        raise ConfigurationError(f"quality_weights names {sorted(weights)}, the scores are {sorted(scores)}")
    total = sum(weights.values())
    if min(weights.values()) < 0 or total <= 0:
        raise ConfigurationError(f"quality_weights must be 0 or more with a positive sum, not {weights}")
    combined_N = torch.zeros_like(next(iter(scores.values())))
    for name, scores_N in scores.items():
        zero, one = constants[name]
        combined_N += weights[name] / total * (scores_N - zero) / (one - zero)
    return combined_N


def diversity_constants(
    metrics: Sequence[DiversityMetric],
    statistics: Statistics,
    budget: Budget,
    zeros: Mapping[str, float],
    dtype: torch.dtype,
) -> Constants:
    """(zero, one) of each diversity metric: `zeros` from random masks, and that plus what the metric alone gains."""
    return {
        metric.name: (
            zeros[metric.name],
            zeros[metric.name] + proxy_gain(metric, statistics, budget, dtype),
        )
        for metric in metrics
    }


def constants_of(
    problem: Problem, scores: Mapping[str, Tensor], zeros: Mapping[str, float], given: Given | None = None
) -> Constants:
    """(zero, one) of every term, as the settings ask for.

    Args:
        problem: On raw values.
        scores: The quality scores by name.
        zeros: Each diversity metric's mean over random masks.
        given: What is held, if anything is.

    Raises:
        ConfigurationError: frozen constants of other terms, or a weighted term that has no range.
    """
    config, metrics = problem.config, [term.metric for term in problem.objective.terms]
    if (fixed := fixed_constants(config, problem.constants, metrics, zeros)) is not None:
        return fixed
    budget = problem.budget
    if budget.takes_everything:
        means = {name: zero for name, (zero, _) in quality_constants(scores, budget, given).items()} | dict(
            zeros
        )
        return {name: centred(mean) for name, mean in means.items()}
    constants = quality_constants(scores, budget, given)
    constants |= diversity_constants(metrics, problem.statistics, budget, zeros, problem.dtype)
    return checked_constants(
        constants, scores, unweighted(config, scores, [metric.name for metric in metrics])
    )


def _resolved(
    constants: Constants, metrics: Sequence[DiversityMetric], zeros: Mapping[str, float]
) -> Constants:
    """Frozen constants, refused where float32 products do not resolve the range of a metric that rests on them.

    Args:
        constants: As they were given.
        metrics: The diversity metrics; one of somebody else's may compute in any precision.
        zeros: Each one's mean over random masks of this block.
    """
    for metric in metrics:
        zero, one = constants[metric.name]
        largest = max(abs(zero), abs(one), abs(zeros[metric.name]))
        if metric.of_products and one - zero <= RESOLVED * HALF_BIT * largest:
            raise ConfigurationError(
                f"normalisation_constants of {metric.name!r} are {zero} and {one}, a range that float32 products do not "
                f"resolve where its value is about {zeros[metric.name]:.6g}; leave them out, or use normalisation none"
            )
    return constants


def fixed_constants(
    config: SelectionConfig, raw: Constants, metrics: Sequence[DiversityMetric], zeros: Mapping[str, float]
) -> Constants | None:
    """The constants that are not measured: raw values, or frozen ones.

    Args:
        config: The settings.
        raw: Those of raw values, of every term.
        metrics: The diversity metrics.
        zeros: Each one's mean over random masks.

    Raises:
        ConfigurationError: frozen constants of other terms, or without a range.
    """
    if config.normalisation == "none":
        return raw
    if config.normalisation_constants is None:
        return None
    if set(config.normalisation_constants) != set(raw):
        missing = set(raw) ^ set(config.normalisation_constants)
        raise ConfigurationError(f"normalisation_constants and terms differ in: {', '.join(sorted(missing))}")
    frozen = dict(config.normalisation_constants)
    for name, (zero, one) in frozen.items():
        if not _has_range(zero, one):
            raise ConfigurationError(
                f"normalisation_constants of {name!r} are {zero} and {one}: the second must lie above the first; leave "
                "normalisation_constants out, or use normalisation none"
            )
    return _resolved(frozen, metrics, zeros)


def unweighted(config: SelectionConfig, scores: Iterable[str], metrics: Iterable[str]) -> set[str]:
    """Terms that the objective gives no weight, or that no mask of the policy depends on."""
    weights, unread = config.quality_weights or {}, POLICIES.find(config.policy).unread
    no_quality = config.lamb == 0 or "normalisation" in unread
    named = {name for name in scores if no_quality or weights.get(name, 1.0) == 0}
    return named | set(metrics) if config.lamb == 1 or "diversity" in unread else named


def checked_constants(
    constants: Constants, scores: Collection[str], without_weight: Collection[str]
) -> Constants:
    """The constants, refused where a term has no range; one of no weight is then told relative to random masks.

    Args:
        constants: As they were measured.
        scores: Which terms are quality scores.
        without_weight: Which have no weight in the objective, or in the policy's choice.

    Raises:
        ConfigurationError: a range that is not above zero, or not finite, naming the term.
    """
    checked = dict(constants)
    for name, (zero, one) in constants.items():
        if _has_range(zero, one):
            continue
        if name not in without_weight:
            weighted = {*constants} - {*without_weight}
            raise ConfigurationError(
                f"term {name!r} cannot be normalised: it is {zero} on random masks and nothing that can be told from "
                f"{one} at its best, {_remedy(name, name in scores, weighted & {*scores}, weighted - {*scores})}, "
                "or use normalisation none"
            )
        checked[name] = centred(zero)
    return checked


def _has_range(zero: float, one: float) -> bool:
    return one - zero > RELATIVE_ZERO * max(abs(zero), abs(one), 1e-300)


def _remedy(name: str, of_quality: bool, scores: Collection[str], metrics: Collection[str]) -> str:
    """Why a term may have no range, and which setting chooses without it; scores and metrics are those of weight."""
    if of_quality:
        cause, alone = (
            f"as where all documents score alike, or {EQUAL}",
            "choose by diversity alone with lamb 0",
        )
        return f"{cause}: {alone if len(scores) == 1 else f'give {name!r} weight 0 in quality_weights'}"
    cause, alone = (
        f"as where all documents are alike, or differ by less than its float32 products tell, or {EQUAL}",
        "choose by quality alone with lamb 1",
    )
    return f"{cause}: {alone if len(metrics) == 1 else f'leave {name!r} out of diversity'}"


def centred(mean: float) -> tuple[float, float]:
    return mean, mean + 1.0


def with_constants(term: Term, constants: Constants) -> Term:
    """The term with its (zero, one)."""
    zero, one = constants[term.name]
    return replace(term, zero=zero, one=one)
