"""The affine maps that put every term on one scale. Knows no policy but the one that makes the proxy.

Shape suffixes: N documents.

For each quality score, 0 is its mean over random masks and 1 its mean over the best one: both exact. For each
diversity metric, 0 is its mean over uniformly random masks, by a closed form where the metric has one and otherwise
over a few of them, and 1 lies above it by what the metric alone gains over random on a sample of the block: a
stated proxy of the best value it reaches. Draws are the same for every seed: the scale is of the block and the budget,
and the weights of an objective mean the same whatever the seed. In blocks of few documents it is the same in whatever
order these stand, too. Every term is normalised, those of no weight too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from datamask_pipeline.diversity.base import CoverageMetric, DiversityMetric, checked_values
from datamask_pipeline.diversity.moments import MomentMetric, Moments, moments_of
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.families import POLICIES
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.checkpoint import Checkpoint
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.evaluation import evaluate
from datamask_pipeline.selection.facility.evaluate import coverage_of
from datamask_pipeline.selection.facility.expected import expected_coverage, sampled_references
from datamask_pipeline.selection.full_masks import FullMasks
from datamask_pipeline.selection.given import Given
from datamask_pipeline.selection.marginal_swaps import reached_by_values
from datamask_pipeline.selection.moments.statistics import Statistics, squared_of
from datamask_pipeline.selection.objective import ObjectiveFunction, Term
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.progress import Curve
from datamask_pipeline.selection.rows import MemoryRows
from datamask_pipeline.selection.seeds import generator

RANDOM_MASKS = 4
MOST_MASKS, COVERAGE_PAIRS = 64, 20_000_000
"""Coverage has no closed form over masks of tokens or of very few documents; more masks are drawn while they are cheap."""
PROXY_DOCUMENTS = 4096
PROXY_STEPS, PROXY_GAP = 10, 0.002
PROXY_SWAP_ROUNDS = 12
FEW_DOCUMENTS = 1024
"""Of few documents random masks differ much, and which are drawn would tell: draws then fall on the same documents however
these stand, and more masks are drawn, or every one there is."""
SWAP_NUMBERS = 2**17
"""Of a sample, documents times dimensions, on which a metric's gain is measured with swaps, which win most of it."""
REPEATED = 1e-3
"""Of its size, what sums in another order may change in the value of a function."""
MASK_WORK, SPECTRAL_WORK = 2**34, 16
"""Products that all masks of few documents may take together, about a quarter of a second; a spectrum takes those of so many
documents for each dimension, or of so many for each document where these are fewer."""
EXACT_DOCUMENTS = 32_768
SCALE_SEED = 0
"""Of every draw that a scale rests on."""
HALF_BIT = 2.0**-24
EQUAL = "all masks that the budget allows are worth the same"
"""Why a term may have no range although documents differ."""
RELATIVE_ZERO = 1e-9
"""Scores, which are float64, have no range where their best mean exceeds their mean by less than this share of either."""
RESOLVED = 50
"""A metric's gain over random masks is one where it is this many times what float32 rounding does to its values."""

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


def random_values(
    metrics: Sequence[DiversityMetric],
    statistics: Statistics,
    budget: Budget,
    dtype: torch.dtype,
) -> dict[str, float]:
    """Each metric's mean raw value over uniformly random masks: exact, or over a few, the same ones for every metric.

    `dtype` is that of the search for the nearest selected document, which coverage metrics do.
    """
    budget = replace(budget, seed=SCALE_SEED)
    means: dict[str, float] = {}
    for some, block, limits in _blocks_to_draw_from(metrics, statistics, budget):
        means |= _exact_means(some, block, limits, dtype)
        drawn = _random_values([m for m in some if m.name not in means], block, limits, dtype)
        means |= {name: sum(values) / len(values) for name, values in drawn.items()}
    for name, mean in means.items():
        if not math.isfinite(mean):
            raise ConfigurationError(f"diversity metric {name!r} returned {mean} on a random mask")
    return means


def _blocks_to_draw_from(
    metrics: Sequence[DiversityMetric], statistics: Statistics, budget: Budget
) -> Iterator[tuple[list[DiversityMetric], Statistics, Budget]]:
    """Metrics with the block and the budget that masks are drawn of: where documents are few, in an order that is theirs.

    Documents are then sorted by group, cost and vector. Metrics of somebody else's, and landmarks, may know rows by number:
    for these the block is as it stands.
    """
    size = statistics.rows.num_rows
    free: list[DiversityMetric] = [
        metric
        for metric in metrics
        if size <= FEW_DOCUMENTS
        and (
            isinstance(metric, MomentMetric)
            or (isinstance(metric, CoverageMetric) and len(metric.references(size)) == size)
        )
    ]
    if free:
        rows_ND = statistics.rows.everything()
        vectors = (row_D.tobytes() for row_D in rows_ND.cpu().numpy())
        keys = list(zip(budget.groups_N.tolist(), budget.costs_N.tolist(), vectors, strict=True))
        order_N = torch.tensor(sorted(range(size), key=keys.__getitem__))
        sorted_rows = MemoryRows(rows_ND[order_N.to(rows_ND.device)], statistics.rows.chunk_rows)
        yield (
            free,
            replace(statistics, rows=sorted_rows, squared_N=statistics.squared_N[order_N]),
            replace(budget, costs_N=budget.costs_N[order_N], groups_N=budget.groups_N[order_N]),
        )
    if others := [metric for metric in metrics if metric not in free]:
        yield others, statistics, budget


def _num_masks(metrics: Sequence[DiversityMetric], statistics: Statistics, budget: Budget) -> int:
    """How many random masks tell the mean of metrics of moments: more of few documents, while that is cheap."""
    if statistics.rows.num_rows > FEW_DOCUMENTS:
        return RANDOM_MASKS
    dim, count = statistics.rows.dim, round(budget.num_documents)
    side = count if count < dim and statistics.held is None else dim
    spectral = [isinstance(metric, MomentMetric) and metric.spectral for metric in metrics]
    works = [
        side * (dim * count + SPECTRAL_WORK * side**2) if takes_spectrum else dim**2 * count
        for takes_spectrum in spectral
    ]
    return min(MOST_MASKS, max(RANDOM_MASKS, MASK_WORK // max(works, default=1)))


def _masks(budget: Budget, drawn: int, few: bool = True) -> Iterator[Tensor]:
    """So many random masks, the same at every call; of few documents every one, where there are no more than `MOST_MASKS`.

    Args:
        budget: What they hold.
        drawn: How many.
        few: Whether every mask is asked for.
    """
    every = budget.every(MOST_MASKS) if few and len(budget.costs_N) <= FEW_DOCUMENTS else None
    if every is not None:
        yield from every
        return
    for draw in range(drawn):
        yield budget.random("normalisation", draw)


def _exact_means(
    metrics: Sequence[DiversityMetric], statistics: Statistics, budget: Budget, dtype: torch.dtype
) -> dict[str, float]:
    """The mean over random masks of those metrics that have it in closed form, for a budget in documents."""
    if budget.tokens:
        return {}
    means: dict[str, float] = {}
    for metric in metrics:
        if isinstance(metric, CoverageMetric):
            references_R = metric.references(statistics.rows.num_rows)
            rows_ND, workers = statistics.rows.everything(), statistics.workers
            mean = expected_coverage(rows_ND, references_R, budget.groups_N, budget.limits, workers, dtype)
            means |= {} if mean is None else {metric.name: mean}
    if len(budget.limits) > 1:
        return means
    return means | _exact_moment_means(metrics, statistics, budget, dtype)


def _exact_moment_means(
    metrics: Sequence[DiversityMetric], statistics: Statistics, budget: Budget, dtype: torch.dtype
) -> dict[str, float]:
    """The same of metrics of moments, for one group of documents.

    Over larger blocks it is that of a uniform sample: pairs of the sample are pairs of the block.
    """
    size = min(statistics.rows.num_rows, EXACT_DOCUMENTS)
    chosen_N = torch.zeros(statistics.rows.num_rows, dtype=torch.bool)
    draws = generator(budget.seed, "normalisation", "means")
    chosen_N[torch.randperm(len(chosen_N), generator=draws)[:size]] = True
    means: dict[str, float] = {}
    moments: Moments | None = None
    for metric in metrics:
        if isinstance(metric, MomentMetric) and metric.quadratic:
            if moments is None:
                # Half precision loses less than drawing a sample does, and more than no sample does.
                exact = size == statistics.rows.num_rows
                moments = statistics.own_moments(chosen_N, torch.float32 if exact else dtype)
                fourth = float(statistics.squared_N[chosen_N].square().sum())
            mean = metric.mean_over_masks(moments, fourth, budget.num_documents, statistics.held)
            if mean is not None:
                means[metric.name] = mean
    return means


def _random_values(
    metrics: Sequence[DiversityMetric],
    statistics: Statistics,
    budget: Budget,
    dtype: torch.dtype,
    few: bool = True,
) -> dict[str, list[float]]:
    """Each metric's raw value at each of the random masks, see `_masks`."""
    found: dict[str, list[float]] = {metric.name: [] for metric in metrics}
    covering = [metric for metric in metrics if isinstance(metric, CoverageMetric)]
    others = [metric for metric in metrics if not isinstance(metric, MomentMetric | CoverageMetric)]
    of_moments = [metric for metric in metrics if isinstance(metric, MomentMetric)]
    for mask_N in _masks(budget, _num_masks(metrics, statistics, budget), few):
        for name, value in _moment_values(of_moments, statistics, mask_N).items():
            found[name].append(value)
        for metric in others:
            embeddings_ND = statistics.rows.everything()
            found[metric.name].append(float(checked_values(metric, embeddings_ND, mask_N[None])[0]))
    for metric in covering:
        references_r = sampled_references(
            metric.references(statistics.rows.num_rows), statistics.rows.num_rows
        )
        pairs = max(1, round(len(references_r) * budget.num_documents))
        for mask_N in _masks(budget, min(MOST_MASKS, max(RANDOM_MASKS, COVERAGE_PAIRS // pairs)), few):
            selected_T = torch.nonzero(mask_N).squeeze(1)
            rows_ND, workers = statistics.rows.everything(), statistics.workers
            found[metric.name].append(coverage_of(rows_ND, references_r, selected_T, workers, dtype).mean)
    return found


def _moment_values(
    metrics: Sequence[MomentMetric], statistics: Statistics, mask_N: Tensor
) -> dict[str, float]:
    """Each metric's raw value at a mask, where documents are few and no more than dimensions from their products."""
    found: dict[str, float] = {}
    count = int(mask_N.sum())
    if len(mask_N) <= FEW_DOCUMENTS and count < statistics.rows.dim and statistics.held is None:
        rows_KD = statistics.rows.take(torch.nonzero(mask_N).squeeze(1)).double().cpu()
        products_KK = rows_KD @ rows_KD.T
        for metric in metrics:
            value = metric.value_of_products(products_KK, statistics.rows.dim)
            found |= {} if value is None else {metric.name: value}
    if len(found) < len(metrics):
        moments = statistics.moments(mask_N)
        found |= {metric.name: metric.value(moments) for metric in metrics if metric.name not in found}
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
    do not. A metric without marginals is taken to gain what exchanges by values do.
    """
    rows, budget = statistics.rows, replace(budget, seed=SCALE_SEED)
    draws = generator(budget.seed, "normalisation", "sample")
    index_n = torch.sort(torch.randperm(rows.num_rows, generator=draws)[:PROXY_DOCUMENTS]).values
    sample, part, held = MemoryRows(rows.take(index_n), rows.chunk_rows), budget.ungrouped.part(index_n), None
    if statistics.held is not None:
        share = part.num_documents / budget.num_documents
        held = statistics.held.plus(statistics.held, share - 1)
    return gain_on_sample(metric, sample, part, held, statistics.workers, dtype)


def gain_on_sample(
    metric: DiversityMetric,
    sample: MemoryRows,
    part: Budget,
    held: Moments | None,
    workers: Workers,
    dtype: torch.dtype,
) -> float:
    """The same for a sample that is drawn.

    Args:
        metric: What is to gain.
        sample: The sample.
        part: Its budget: documents without quotas.
        held: What stands beside every mask of the sample, if anything does.
        workers: Who computes.
        dtype: See `proxy_gain`.
    """
    size = sample.num_rows
    probe_N = torch.arange(min(size, 4)) < 2
    is_black_box = metric.marginals(sample.everything()[: len(probe_N)], probe_N.to(sample.device)) is None
    config = SelectionConfig.model_validate(
        {
            "lamb": 0.0,
            "seed": part.seed,
            "dtype": str(dtype).removeprefix("torch."),
        }
    )
    inside = Statistics(
        rows=sample,
        workers=workers,
        squared_N=squared_of(sample, workers),
        needs_second=isinstance(metric, MomentMetric) and metric.needs_second,
        held=held,
    )
    ((_, inside, part),) = _blocks_to_draw_from([metric], inside, part)
    exact = _exact_means([metric], inside, part, dtype)
    drawn = _random_values([metric], inside, part, dtype, few=not exact)[metric.name]
    start = exact.get(metric.name, sum(drawn) / len(drawn))
    alone = Problem(
        config=config,
        rows=inside.rows,
        squared_N=inside.squared_N,
        objective=ObjectiveFunction(
            lamb=0.0,
            quality_N=torch.zeros(size, dtype=torch.float64),
            terms=(Term(name=metric.name, metric=metric, weight=1.0),),
            held_count=0.0 if held is None else held.count,
        ),
        budget=part,
        held=held,
        workers=workers,
        constants={metric.name: (0.0, 1.0)},
        random_value=start,
        report=lambda record: None,
        checkpoint=Checkpoint(None, "", 0.0, Curve(None)),
    )
    if is_black_box:
        _require_repeatable(metric, inside, part)
        return max(reached_by_values(alone), *drawn) - start
    settings = {"num_steps": PROXY_STEPS, "gap_tolerance": PROXY_GAP}
    swaps = {"num_swap_rounds": PROXY_SWAP_ROUNDS}
    few = size <= FEW_DOCUMENTS and size * sample.dim <= SWAP_NUMBERS
    once = swaps | {"num_restarts": 0, "num_kicks": 0} if few else {"num_swap_rounds": 0}
    learner = POLICIES.make("datamask", settings | once)
    reached = evaluate(alone, learner.choose(alone)).raw[metric.name]
    if not reached > max(drawn):
        # Few documents in few dimensions: rounding alone may lose more than was gained, swaps win it back.
        learner = POLICIES.make("datamask", settings | swaps)
        reached = evaluate(alone, learner.choose(alone)).raw[metric.name]
    gain = max(reached, *drawn) - start
    return gain if gain > RESOLVED * _rounding(metric, inside, part) else 0.0


def _require_repeatable(metric: DiversityMetric, statistics: Statistics, budget: Budget) -> None:
    """Refuse a black box whose value of a mask hangs on chance, or on which masks it is asked about with.

    Raises:
        ConfigurationError: it does.
    """
    rows_ND = statistics.rows.everything()
    masks_GN = torch.stack([budget.random("normalisation", draw) for draw in range(2)])
    together_G, alone_G = (
        checked_values(metric, rows_ND, masks_GN),
        checked_values(metric, rows_ND, masks_GN[1:]),
    )
    if not float((together_G[1] - alone_G[0]).abs()) <= REPEATED * float(together_G.abs().max()):
        raise ConfigurationError(
            f"diversity metric {metric.name!r} gave a mask {float(together_G[1])} beside another and {float(alone_G[0])} by "
            "itself: its value may depend on the vectors and on that mask alone, and on no draw"
        )


def _rounding(metric: DiversityMetric, statistics: Statistics, budget: Budget) -> float:
    """What float32 arithmetic changes in the metric's values of random masks: the larger difference of two.

    Never less than half of the last bit of such a value, which identical rows would hide.
    """
    masks_GN = torch.stack([budget.random("normalisation", draw) for draw in range(2)])
    rows_ND, held = statistics.rows.everything(), statistics.held
    if isinstance(metric, MomentMetric):
        single_G = torch.tensor(
            [metric.value(statistics.moments(mask_N)) for mask_N in masks_GN], dtype=torch.float64
        )
    else:
        single_G = checked_values(metric, rows_ND, masks_GN)
    if isinstance(metric, MomentMetric) and held is not None:
        exact = [moments_of(rows_ND.double(), mask_N, metric.needs_second).plus(held) for mask_N in masks_GN]
        double_G = torch.tensor([metric.value(moments) for moments in exact], dtype=torch.float64)
    else:
        double_G = checked_values(metric, rows_ND.double(), masks_GN)
    return max(float((double_G - single_G).abs().max()), float(double_G.abs().max()) * HALF_BIT)


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
        single = isinstance(metric, MomentMetric | CoverageMetric)
        if single and one - zero <= RESOLVED * HALF_BIT * largest:
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
    """Terms that the objective gives no weight."""
    weights = config.quality_weights or {}
    named = {name for name in scores if config.lamb == 0 or weights.get(name, 1.0) == 0}
    return named | set(metrics) if config.lamb == 1 else named


def checked_constants(
    constants: Constants, scores: Collection[str], without_weight: Collection[str]
) -> Constants:
    """The constants, refused where a term has no range; one of no weight is then told relative to random masks.

    Args:
        constants: As they were measured.
        scores: Which terms are quality scores.
        without_weight: Which have no weight in the objective.

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
    cause, alone = f"as where all documents are alike, or {EQUAL}", "choose by quality alone with lamb 1"
    return f"{cause}: {alone if len(metrics) == 1 else f'leave {name!r} out of diversity'}"


def centred(mean: float) -> tuple[float, float]:
    return mean, mean + 1.0


def with_constants(term: Term, constants: Constants) -> Term:
    """The term with its (zero, one)."""
    zero, one = constants[term.name]
    return replace(term, zero=zero, one=one)
