"""What random masks are worth to a metric: in closed form where it has one, else the mean over a few. Knows no scale.

Draws are the same for every seed. Of few documents they are the same in whatever order these stand, too.
Shape suffixes: N documents, K selected documents, D embedding dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from datamask_pipeline.diversity.base import CoverageMetric, DiversityMetric, checked_values
from datamask_pipeline.diversity.moments import DrawnGroup, MomentMetric
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.facility.evaluate import coverage_of
from datamask_pipeline.selection.facility.expected import expected_coverage, sampled_references
from datamask_pipeline.selection.moments.statistics import Statistics
from datamask_pipeline.selection.rows import MemoryRows
from datamask_pipeline.selection.seeds import generator

RANDOM_MASKS = 4
MOST_MASKS, COVERAGE_PAIRS = 64, 20_000_000
"""Coverage has no closed form over masks of tokens or of very few documents; more masks are drawn while they are cheap."""
FEW_DOCUMENTS = 1024
"""Of few documents random masks differ much, and which are drawn would tell: draws then fall on the same documents however
these stand, and every mask is taken where there are few."""
MASK_WORK, LEAST_WORK, SPECTRAL_WORK = 2**34, 2**30, 16
"""Products that all masks may take together, about a quarter of a second where they tell a mean, a sixteenth of that where
they only tell what a learner must exceed; a spectrum takes those of so many documents for each dimension, or of so many for
each document where these are fewer."""
EXACT_DOCUMENTS = 32_768
"""Pairs of a sample of so many stand for those of the block."""
MOST_GROUPED = 2**24
"""Numbers of all groups' moments together: 128 MiB."""
SCALE_SEED = 0
"""Of every draw that a scale rests on."""


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
    for some, block, limits in blocks_to_draw_from(metrics, statistics, budget):
        means |= exact_means(some, block, limits, dtype)
        if others := [metric for metric in some if metric.name not in means]:
            drawn = drawn_values(others, block, limits, dtype)
            means |= {name: sum(values) / len(values) for name, values in drawn.items()}
    for name, mean in means.items():
        if not math.isfinite(mean):
            raise ConfigurationError(f"diversity metric {name!r} returned {mean} on a random mask")
    return means


def blocks_to_draw_from(
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
        and metric.of_products
        and (not isinstance(metric, CoverageMetric) or len(metric.references(size)) == size)
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


def num_masks(
    metrics: Sequence[DiversityMetric], count: int, dim: int, held: bool, work: int = MASK_WORK
) -> int:
    """How many random masks tell the mean of metrics of moments: more while they are cheap.

    Args:
        metrics: The metrics.
        count: Documents of a mask.
        dim: Dimensions.
        held: Whether anything stands beside every mask.
        work: Products that all masks may take together.
    """
    side = count if count < dim and not held else dim
    spectral = [isinstance(metric, MomentMetric) and metric.spectral for metric in metrics]
    works = [
        side * (dim * count + SPECTRAL_WORK * side**2) if takes_spectrum else dim**2 * count
        for takes_spectrum in spectral
    ]
    return min(MOST_MASKS, max(RANDOM_MASKS, work // max(works, default=1)))


def _masks(budget: Budget, drawn: int, mean: bool = True) -> Iterator[Tensor]:
    """So many random masks, the same at every call; of few documents every one, where there are no more than `MOST_MASKS`.

    Args:
        budget: What they hold.
        drawn: How many.
        mean: Whether they tell a mean, so that every mask is asked for where there are few.
    """
    every = budget.every(MOST_MASKS) if mean and len(budget.costs_N) <= FEW_DOCUMENTS else None
    if every is not None:
        yield from every
        return
    for draw in range(drawn):
        yield budget.random("normalisation", draw)


def exact_means(
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
    quadratic = [metric for metric in metrics if isinstance(metric, MomentMetric) and metric.quadratic]
    groups = _groups(statistics, budget, dtype) if quadratic else []
    for metric in quadratic if groups else []:
        mean = metric.mean_over_masks(groups, statistics.held)
        means |= {} if mean is None else {metric.name: mean}
    return means


def _groups(statistics: Statistics, budget: Budget, dtype: torch.dtype) -> list[DrawnGroup]:
    """Moments of each group that masks hold documents of.

    Over larger blocks those of a uniform sample: pairs of the sample are pairs of the block. No groups where a sample could
    leave one without a pair, and where they are too many.
    """
    rows, limits = statistics.rows, budget.limits
    size = min(rows.num_rows, EXACT_DOCUMENTS)
    numbers = len(limits) * rows.dim ** (2 if statistics.needs_second else 1)
    if len(limits) > 1 and (size < rows.num_rows or numbers > MOST_GROUPED):
        return []
    chosen_N = torch.zeros(rows.num_rows, dtype=torch.bool)
    draws = generator(budget.seed, "normalisation", "means")
    chosen_N[torch.randperm(len(chosen_N), generator=draws)[:size]] = True
    # Half precision loses less than drawing a sample does, and more than no sample does.
    dtype = torch.float32 if size == rows.num_rows else dtype
    groups = []
    for group, limit in enumerate(limits):
        members_N = chosen_N & (budget.groups_N == group)
        if limit:
            moments = statistics.own_moments(members_N, dtype)
            fourth = float(statistics.squared_N[members_N].square().sum())
            groups.append(DrawnGroup(moments=moments, fourth=fourth, count=limit))
    return groups


def drawn_values(
    metrics: Sequence[DiversityMetric],
    statistics: Statistics,
    budget: Budget,
    dtype: torch.dtype,
    mean: bool = True,
) -> dict[str, list[float]]:
    """Each metric's raw value at each of the random masks, see `_masks`; fewer of many documents where they tell no mean."""
    found: dict[str, list[float]] = {metric.name: [] for metric in metrics}
    covering = [metric for metric in metrics if isinstance(metric, CoverageMetric)]
    others = [metric for metric in metrics if not isinstance(metric, MomentMetric | CoverageMetric)]
    of_moments = [metric for metric in metrics if isinstance(metric, MomentMetric)]
    size, held = statistics.rows.num_rows, statistics.held is not None
    work = MASK_WORK if mean or size <= FEW_DOCUMENTS else LEAST_WORK
    drawn = num_masks(metrics, round(budget.num_documents), statistics.rows.dim, held, work)
    for mask_N in _masks(budget, drawn, mean):
        for name, value in _moment_values(of_moments, statistics, mask_N).items():
            found[name].append(value)
        for metric in others:
            embeddings_ND = statistics.rows.everything()
            found[metric.name].append(float(checked_values(metric, embeddings_ND, mask_N[None])[0]))
    for metric in covering:
        references_r = sampled_references(metric.references(size), size)
        pairs = max(1, round(len(references_r) * budget.num_documents))
        for mask_N in _masks(budget, min(MOST_MASKS, max(RANDOM_MASKS, COVERAGE_PAIRS // pairs)), mean):
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
