"""What a metric alone gains over random masks, by the default learner: the 1 of its scale.

Shape suffixes: N documents, n sampled documents, G masks, D embedding dimensions.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from datamask_pipeline.diversity.base import CoverageMetric, DiversityMetric, checked_values
from datamask_pipeline.diversity.moments import MomentMetric, Moments, moments_of
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.budget import Budget
from datamask_pipeline.selection.checkpoint import Checkpoint
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.evaluation import evaluate
from datamask_pipeline.selection.facility.nearest import tells_apart
from datamask_pipeline.selection.marginal_swaps import reached_by_values
from datamask_pipeline.selection.moments.choose import choose_by_moments
from datamask_pipeline.selection.moments.statistics import Statistics, squared_of
from datamask_pipeline.selection.objective import ObjectiveFunction, Term
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.policies.datamask import DataMaskConfig, DataMaskPolicy
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.progress import Curve
from datamask_pipeline.selection.random_masks import (
    FEW_DOCUMENTS,
    SCALE_SEED,
    blocks_to_draw_from,
    drawn_values,
    exact_means,
)
from datamask_pipeline.selection.rows import MemoryRows
from datamask_pipeline.selection.seeds import generator

PROXY_DOCUMENTS = 4096
PROXY_STEPS, PROXY_GAP = 10, 0.002
PROXY_SWAP_ROUNDS = 12
PROXY_RESTARTS = 2
"""Of a metric along a graph: four masks are annealed for each."""
EXCHANGED_NUMBERS, EXCHANGE_WORK = 2**17, 2**22
"""Of a sample, documents times dimensions, on which a metric's gain is measured with exchanges of documents too; where these
are more than few, that times the selected documents, which takes up to a second. Swaps alone reach nearly as much."""
REPEATED = 1e-3
"""Of its size, what sums in another order may change in the value of a function."""
HALF_BIT = 2.0**-24
"""Half of the last bit of a float32, as a share."""
RESOLVED = 50
"""A metric's gain over random masks is one where it is this many times what float32 rounding does to its values."""


def proxy_gain(metric: DiversityMetric, statistics: Statistics, budget: Budget, dtype: torch.dtype) -> float:
    """What the metric alone gains over random masks on a sample of the block, with the default learner; on the block itself
    where a metric is not one of samples.

    `dtype` is that of the block's own gradients and searches: constants must not depend on the machine where masks
    do not. A metric without marginals is taken to gain what exchanges by values do.
    """
    rows, budget = statistics.rows, replace(budget, seed=SCALE_SEED)
    draws = generator(budget.seed, "normalisation", "sample")
    index_n = torch.sort(torch.randperm(rows.num_rows, generator=draws)[:PROXY_DOCUMENTS]).values
    if metric.of_samples:
        sample, part, held = (
            MemoryRows(rows.take(index_n), rows.chunk_rows),
            budget.ungrouped.part(index_n),
            None,
        )
    else:
        sample, part, held = MemoryRows(rows.everything(), rows.chunk_rows), budget.ungrouped, None
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
    if isinstance(metric, CoverageMetric) and not tells_apart(sample.everything(), dtype):
        dtype = torch.float32
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
    ((_, inside, part),) = blocks_to_draw_from([metric], inside, part)
    exact = exact_means([metric], inside, part, dtype)
    drawn = drawn_values([metric], inside, part, dtype, mean=not exact)[metric.name]
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
            held_in_part=held is not None,
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
    settings = DataMaskConfig(
        num_steps=PROXY_STEPS,
        gap_tolerance=PROXY_GAP,
        num_swap_rounds=PROXY_SWAP_ROUNDS,
        num_restarts=0,
        num_kicks=0,
    )
    thorough = DataMaskConfig(
        num_steps=PROXY_STEPS, gap_tolerance=PROXY_GAP, num_swap_rounds=PROXY_SWAP_ROUNDS
    )
    numbers, few = size * sample.dim, size <= FEW_DOCUMENTS
    if isinstance(metric, MomentMetric):
        quick = few or numbers * part.num_documents <= EXCHANGE_WORK
        solution = choose_by_moments(alone, settings, exchanging=quick and numbers <= EXCHANGED_NUMBERS)
    elif not metric.of_samples:
        solution = DataMaskPolicy(thorough.model_copy(update={"num_restarts": PROXY_RESTARTS})).choose(alone)
    else:
        plain = settings.model_copy(update={"num_swap_rounds": 0})
        swapped = few and numbers <= EXCHANGED_NUMBERS
        solution = DataMaskPolicy(settings if swapped else plain).choose(alone)
    reached = evaluate(alone, solution).raw[metric.name]
    if not reached > max(drawn):
        # Few documents in few dimensions: rounding alone may lose more than was gained, exchanges win it back.
        reached = evaluate(alone, DataMaskPolicy(thorough).choose(alone)).raw[metric.name]
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
