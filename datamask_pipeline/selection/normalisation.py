"""The affine maps that put every term on one scale. Knows no policy but the one that makes the proxy.

Shape suffixes: N documents.

For each quality score, 0 is its mean over random masks and 1 its mean over the best one: both exact. For each
diversity metric, 0 is its mean over uniformly random masks, by a closed form where the metric has one and otherwise
over a few of them, and 1 lies above it by what the metric alone gains over random on a seeded sample of the block: a
stated proxy of the best value it reaches. Every term is normalised, those of no weight too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from datamask_pipeline.diversity.base import CoverageMetric, DiversityMetric, checked_values
from datamask_pipeline.diversity.moments import MomentMetric, Moments
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.families import POLICIES
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.checkpoint import Checkpoint
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.evaluation import evaluate
from datamask_pipeline.selection.facility.evaluate import mask_value
from datamask_pipeline.selection.moments.statistics import Statistics, squared_of
from datamask_pipeline.selection.objective import ObjectiveFunction, Term
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.progress import Curve
from datamask_pipeline.selection.rows import MemoryRows
from datamask_pipeline.selection.seeds import generator

RANDOM_MASKS = 4
PROXY_DOCUMENTS = 4096
PROXY_STEPS = 10
PROXY_SWAP_ROUNDS = 12
SPREAD_MASKS = 32
EXACT_DOCUMENTS = 20_000
HALF_BIT = 2.0**-24
RELATIVE_ZERO = 1e-9
"""Scores, which are float64, have no range where their best mean exceeds their mean by less than this share of either."""
RESOLVED = 50
"""A metric's gain over random masks is one where it is this many times what float32 rounding does to its values."""

Constants = dict[str, tuple[float, float]]


def quality_constants(scores: Mapping[str, Tensor], budget: Budget) -> Constants:
    """(zero, one) of each quality score: its mean over random masks, its mean over the best one."""
    return {
        name: (budget.mean(q_N), float(q_N[budget.best(q_N, exact=True)].mean()))
        for name, q_N in scores.items()
    }


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


def random_values(
    metrics: Sequence[DiversityMetric],
    statistics: Statistics,
    budget: Budget,
    dtype: torch.dtype,
) -> dict[str, float]:
    """Each metric's mean raw value over uniformly random masks: exact, or over a few, the same ones for every metric.

    `dtype` is that of the search for the nearest selected document, which coverage metrics do.
    """
    means = _exact_means(metrics, statistics, budget)
    drawn = _random_values([m for m in metrics if m.name not in means], statistics, budget, dtype)
    means |= {name: sum(values) / len(values) for name, values in drawn.items()}
    for name, mean in means.items():
        if not math.isfinite(mean):
            raise ConfigurationError(f"diversity metric {name!r} returned {mean} on a random mask")
    return means


def _exact_means(
    metrics: Sequence[DiversityMetric], statistics: Statistics, budget: Budget
) -> dict[str, float]:
    """The mean over random masks of those metrics that have it in closed form, for one group of documents.

    Over larger blocks it is that of a uniform sample, as many rows as the random masks would read: pairs of the
    sample are pairs of the block, so that it errs less than those masks.
    """
    if budget.tokens or len(budget.limits) > 1:
        return {}
    size = min(statistics.rows.num_rows, max(EXACT_DOCUMENTS, round(RANDOM_MASKS * budget.num_documents)))
    chosen_N = torch.zeros(statistics.rows.num_rows, dtype=torch.bool)
    draws = generator(budget.seed, "normalisation", "means")
    chosen_N[torch.randperm(len(chosen_N), generator=draws)[:size]] = True
    means: dict[str, float] = {}
    moments: Moments | None = None
    for metric in metrics:
        if isinstance(metric, MomentMetric) and metric.quadratic:
            if moments is None:
                moments = statistics.moments(chosen_N)
                fourth = float(statistics.squared_N[chosen_N].square().sum())
            mean = metric.mean_over_masks(moments, fourth, budget.num_documents)
            if mean is not None:
                means[metric.name] = mean
    return means


def _random_values(
    metrics: Sequence[DiversityMetric], statistics: Statistics, budget: Budget, dtype: torch.dtype
) -> dict[str, list[float]]:
    """Each metric's raw value at each of the random masks."""
    found: dict[str, list[float]] = {metric.name: [] for metric in metrics}
    others = [metric for metric in metrics if not isinstance(metric, MomentMetric)]
    for draw in range(RANDOM_MASKS):
        mask_N = budget.random("normalisation", draw)
        if len(others) < len(metrics):
            moments = statistics.moments(mask_N)
            for metric in metrics:
                if isinstance(metric, MomentMetric):
                    found[metric.name].append(metric.value(moments))
        for metric in others:
            embeddings_ND = statistics.rows.everything()
            if isinstance(metric, CoverageMetric):
                value = mask_value(metric, embeddings_ND, mask_N, statistics.workers, dtype)
            else:
                value = float(checked_values(metric, embeddings_ND, mask_N[None])[0])
            found[metric.name].append(value)
    return found


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


def proxy_gain(metric: DiversityMetric, statistics: Statistics, budget: Budget, dtype: torch.dtype) -> float:
    """What the metric alone gains over random masks on a sample of the block, with the default learner.

    `dtype` is that of the block's own gradients and searches: constants must not depend on the machine where masks
    do not. A metric without marginals is taken to gain four standard deviations of its random values: how far a learner
    gets with a black box is not known beforehand.
    """
    rows = statistics.rows
    size = min(rows.num_rows, PROXY_DOCUMENTS)
    draws = generator(budget.seed, "normalisation", "sample")
    index_n = torch.sort(torch.randperm(rows.num_rows, generator=draws)[:size]).values
    sample = MemoryRows(rows.take(index_n), rows.chunk_rows)
    part = budget.ungrouped.part(index_n)
    probe_N = torch.arange(min(size, 4)) < 2
    if metric.marginals(sample.everything()[: len(probe_N)], probe_N.to(sample.device)) is None:
        masks_GN = torch.stack([part.random("normalisation", "spread", draw) for draw in range(SPREAD_MASKS)])
        return 4 * float(checked_values(metric, sample.everything(), masks_GN).std())
    config = SelectionConfig.model_validate(
        {
            "lamb": 0.0,
            "seed": budget.seed,
            "dtype": str(dtype).removeprefix("torch."),
        }
    )
    squared_N = squared_of(sample, statistics.workers)
    inside = replace(statistics, rows=sample, squared_N=squared_N)
    drawn = _random_values([metric], inside, part, dtype)[metric.name]
    start = _exact_means([metric], inside, part).get(metric.name, sum(drawn) / len(drawn))
    alone = Problem(
        config=config,
        rows=sample,
        squared_N=squared_N,
        objective=ObjectiveFunction(
            lamb=0.0,
            quality_N=torch.zeros(size, dtype=torch.float64),
            terms=(Term(name=metric.name, metric=metric, weight=1.0),),
        ),
        budget=part,
        workers=statistics.workers,
        constants={metric.name: (0.0, 1.0)},
        random_value=start,
        report=lambda record: None,
        checkpoint=Checkpoint(None, "", 0.0, Curve(None)),
    )
    learner = POLICIES.make("datamask", {"num_steps": PROXY_STEPS, "num_swap_rounds": 0})
    reached = evaluate(alone, learner.choose(alone)).raw[metric.name]
    if not reached > max(drawn):
        # Few documents in few dimensions: rounding alone may lose more than was gained, swaps win it back.
        swapping = {"num_steps": PROXY_STEPS, "num_swap_rounds": PROXY_SWAP_ROUNDS}
        learner = POLICIES.make("datamask", swapping)
        reached = evaluate(alone, learner.choose(alone)).raw[metric.name]
    gain = max(reached, *drawn) - start
    return gain if gain > RESOLVED * _rounding(metric, inside, part) else 0.0


def _rounding(metric: DiversityMetric, statistics: Statistics, budget: Budget) -> float:
    """What float32 arithmetic changes in the metric's values of random masks: the larger difference of two.

    Never less than half of the last bit of such a value, which identical rows would hide.
    """
    masks_GN = torch.stack([budget.random("normalisation", draw) for draw in range(2)])
    rows_ND = statistics.rows.everything()
    if isinstance(metric, MomentMetric):
        single_G = torch.tensor(
            [metric.value(statistics.moments(mask_N)) for mask_N in masks_GN], dtype=torch.float64
        )
    else:
        single_G = checked_values(metric, rows_ND, masks_GN)
    double_G = checked_values(metric, rows_ND.double(), masks_GN)
    return max(float((double_G - single_G).abs().max()), float(double_G.abs().max()) * HALF_BIT)


def constants_of(problem: Problem, scores: Mapping[str, Tensor], zeros: Mapping[str, float]) -> Constants:
    """(zero, one) of every term, as the settings ask for.

    Args:
        problem: On raw values.
        scores: The quality scores by name.
        zeros: Each diversity metric's mean over random masks.

    Raises:
        ConfigurationError: frozen constants of other terms, or a weighted term that has no range.
    """
    config, metrics = problem.config, [term.metric for term in problem.objective.terms]
    if config.normalisation == "none":
        return problem.constants
    if config.normalisation_constants is not None:
        if set(config.normalisation_constants) != set(problem.constants):
            missing = set(problem.constants) ^ set(config.normalisation_constants)
            raise ConfigurationError(
                f"normalisation_constants and terms differ in: {', '.join(sorted(missing))}"
            )
        return checked_constants(dict(config.normalisation_constants))
    budget, weights = problem.budget, config.quality_weights or {}
    if budget.takes_everything:
        means = {name: budget.mean(q_N) for name, q_N in scores.items()} | dict(zeros)
        return {name: _centred(mean) for name, mean in means.items()}
    constants = quality_constants(scores, budget)
    constants |= diversity_constants(metrics, problem.statistics, budget, zeros, problem.dtype)
    unweighted = {name for name in scores if config.lamb == 0 or weights.get(name, 1.0) == 0}
    if config.lamb == 1:
        unweighted |= {metric.name for metric in metrics}
    return checked_constants(constants, unweighted)


def checked_constants(constants: Constants, unweighted: Collection[str] = ()) -> Constants:
    """The constants, refused where a term has no range; one of no weight is then told relative to random masks.

    Raises:
        ConfigurationError: a range that is not above zero, or not finite, naming the term.
    """
    checked = dict(constants)
    for name, (zero, one) in constants.items():
        if one - zero > RELATIVE_ZERO * max(abs(zero), abs(one), 1e-300):
            continue
        if name not in unweighted:
            raise ConfigurationError(
                f"term {name!r} cannot be normalised: it is {zero} on random masks and nothing that float32 products "
                f"tell from {one} at its best, as where all documents are alike; leave it out, or use normalisation none"
            )
        checked[name] = _centred(zero)
    return checked


def _centred(mean: float) -> tuple[float, float]:
    return mean, mean + 1.0


def with_constants(term: Term, constants: Constants) -> Term:
    """The term with its (zero, one)."""
    zero, one = constants[term.name]
    return replace(term, zero=zero, one=one)
