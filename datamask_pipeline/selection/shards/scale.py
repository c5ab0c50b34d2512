"""The affine maps of every term over documents of several processes, see `selection.normalisation`. Knows no process.

Samples are taken by lot of row number. That on which a metric is tried alone comes here; others stay where they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from datamask_pipeline.diversity.base import CoverageMetric, DiversityMetric
from datamask_pipeline.diversity.moments import DrawnGroup, MomentMetric
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.facility.expected import FEWEST
from datamask_pipeline.selection.given import Given
from datamask_pipeline.selection.normalisation import (
    Constants,
    centred,
    checked_constants,
    fixed_constants,
    unweighted,
    with_held,
)
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.proxy import PROXY_DOCUMENTS, gain_on_sample
from datamask_pipeline.selection.random_masks import (
    COVERAGE_PAIRS,
    MOST_MASKS,
    RANDOM_MASKS,
    SCALE_SEED,
    num_masks,
)
from datamask_pipeline.selection.rows import MemoryRows
from datamask_pipeline.selection.shards.population import Population

MEANS_DOCUMENTS = 100_000
"""Documents whose pairs stand for all pairs, where there is a closed form: the mean errs by less than random masks do."""

NOTHING = torch.zeros(0, dtype=torch.float64)
"""Each document's quality lies with the document."""


def random_means(people: Population, metrics: Sequence[DiversityMetric]) -> dict[str, float]:
    """Each metric's mean over uniformly random masks: in closed form, or over a few masks.

    Raises:
        ConfigurationError: it is not finite.
    """
    people, means = _for_scale(people), {}
    of_moments = [metric for metric in metrics if isinstance(metric, MomentMetric)]
    if not people.limits.tokens and not people.limits.grouped:
        means = _closed_means(people, [metric for metric in of_moments if metric.quadratic])
    drawn = _drawn_values(people, [metric for metric in of_moments if metric.name not in means])
    drawn |= {
        metric.name: _drawn_coverage(people) for metric in metrics if isinstance(metric, CoverageMetric)
    }
    means |= {name: sum(values) / len(values) for name, values in drawn.items()}
    for name, mean in means.items():
        if not math.isfinite(mean):
            raise ConfigurationError(f"diversity metric {name!r} returned {mean} on a random mask")
    return means


def _for_scale(people: Population) -> Population:
    """The same documents with draws that are the same for every seed."""
    return people.with_limits(replace(people.limits, seed=SCALE_SEED))


def _closed_means(people: Population, metrics: Sequence[MomentMetric]) -> dict[str, float]:
    if not metrics:
        return {}
    people.sample("sampled", min(people.num_rows, MEANS_DOCUMENTS), "normalisation", "means")
    part = people.part("means", "sampled", ["squared"])
    sample = part.own_moments("all")
    (fourth,) = part.dots(("squared", "squared"))
    people.team.later("forget", name="means")
    group = DrawnGroup(moments=sample, fourth=fourth, count=people.limits.num_documents)
    found = {metric.name: metric.mean_over_masks([group], people.held) for metric in metrics}
    return {name: mean for name, mean in found.items() if mean is not None}


def _drawn_values(people: Population, metrics: Sequence[MomentMetric]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {metric.name: [] for metric in metrics}
    count = round(people.limits.num_documents)
    drawn = num_masks(metrics, count, people.dim, people.held is not None) if metrics else 0
    for draw in range(drawn):
        people.random("random", "normalisation", draw)
        moments = people.moments("random")
        for metric in metrics:
            found[metric.name].append(metric.value(moments))
    return found


def _drawn_coverage(people: Population) -> list[float]:
    """How well random masks cover a sample of the documents, whose vectors travel."""
    people.sample("sampled", min(people.num_rows, FEWEST), "normalisation", "references")
    rows_RD = people.rows("sampled")["rows"].numpy()
    pairs = max(1, round(len(rows_RD) * people.limits.num_documents))
    found = []
    for draw in range(min(MOST_MASKS, max(RANDOM_MASKS, COVERAGE_PAIRS // pairs))):
        people.random("random", "normalisation", draw)
        most = [
            told["most"] for told in people.team.parts("reach", view=people.view, mask="random", rows=rows_RD)
        ]
        found.append(float(np.clip(np.max(most, axis=0), 0, None).mean(dtype=np.float64)))
    return found


def constants_of(
    people: Population,
    config: SelectionConfig,
    metrics: Sequence[DiversityMetric],
    scores: Sequence[str],
    zeros: Mapping[str, float],
    given: Given | None,
) -> Constants:
    """(zero, one) of every term, as the settings ask for, see `normalisation.constants_of`.

    Raises:
        ConfigurationError: frozen constants of other terms, or a weighted term that has no range.
    """
    names = [metric.name for metric in metrics]
    fixed = fixed_constants(config, dict.fromkeys([*scores, *names], (0.0, 1.0)), metrics, zeros)
    if fixed is not None:
        return fixed
    constants = with_held(_quality_constants(people, scores), people.limits.num_documents, given)
    if people.limits.takes_everything:
        return {
            name: centred(mean)
            for name, mean in ({name: zero for name, (zero, _) in constants.items()} | dict(zeros)).items()
        }
    sampled = _for_scale(people)
    sampled.sample("sampled", min(people.num_rows, PROXY_DOCUMENTS), "normalisation", "sample")
    sample = MemoryRows(sampled.rows("sampled")["rows"], config.chunk_rows)
    for metric in metrics:
        gain = _proxy_gain(people, metric, config, sample)
        constants[metric.name] = (zeros[metric.name], zeros[metric.name] + gain)
    return checked_constants(constants, scores, unweighted(config, scores, names))


def _quality_constants(people: Population, scores: Sequence[str]) -> Constants:
    """(zero, one) of each quality score: its mean over random masks, its mean over the best one."""
    constants = {}
    for name in scores:
        column = f"score/{name}"
        people.best("best", column, exact=True)
        total, count = people.dots(("best", column), ("best", None))
        constants[name] = (random_mean(people, column), total / count)
    return constants


def random_mean(people: Population, column: str) -> float:
    """A column's mean over random masks, see `Budget.mean`."""
    limits = people.limits
    if not limits.grouped:
        return people.dots((column, None))[0] / people.num_rows
    total = 0.0
    for group in np.flatnonzero(limits.limits_G).tolist():
        people.call("combine_group", into="group", group=group)
        total += int(limits.limits_G[group]) * people.dots(("group", column))[0] / int(limits.sizes_G[group])
    return total / int(limits.limits_G.sum())


def _proxy_gain(
    people: Population, metric: DiversityMetric, config: SelectionConfig, sample: MemoryRows
) -> float:
    """What the metric alone gains over random masks on a sample, see `normalisation.proxy_gain`."""
    total = max(2, round(people.limits.num_documents * sample.num_rows / people.num_rows))
    part = Budget(
        costs_N=torch.ones(sample.num_rows, dtype=torch.float64),
        groups_N=torch.zeros(sample.num_rows, dtype=torch.int64),
        limits=(float(total),),
        tokens=False,
        seed=SCALE_SEED,
    )
    held = people.held
    if held is not None:
        held = held.plus(held, total / people.limits.num_documents - 1)
    with Workers(1) as workers:
        return gain_on_sample(metric, sample, part, held, workers, getattr(torch, config.arithmetic))
