"""The learner for metrics of moments: projected gradient on the relaxed mask, rounding, swaps, certificate.

Knows no input format and no report. Shape suffixes: N documents.

The better of two roundings begins the swaps; where every metric is concave, the linearisation at the relaxed
optimum certifies the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import Moments
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.moments.relaxed import Ascent, RelaxedObjective, ascend, start_at
from datamask_pipeline.selection.moments.rounding import filled, round_mask
from datamask_pipeline.selection.moments.statistics import Statistics
from datamask_pipeline.selection.moments.swaps import swap
from datamask_pipeline.selection.policies.datamask import DataMaskConfig
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.rows import MemoryRows
from datamask_pipeline.selection.seeds import generator
from datamask_pipeline.selection.solution import Solution

SAMPLE_STEPS = 12
ROUNDING_SHARE = 0.1
"""Swaps end at this share of the gap that ends the ascent: they are the cheaper way to the same objective."""


def choose_by_moments(problem: Problem, config: DataMaskConfig) -> Solution:
    """Projected gradient, rounding, swaps, certificate."""
    objective, budget = problem.moment_objective, problem.budget
    # Without second moments a step only reads the rows: half the bytes would cost the bound its accuracy.
    dtype = problem.dtype if problem.objective.needs_second else torch.float32
    relaxed = RelaxedObjective(statistics=problem.statistics, objective=objective, budget=budget, dtype=dtype)
    proof = Proof(problem, relaxed)

    def on_step(ascent: Ascent, value: float, bound: float | None) -> bool:
        record = {"step": ascent.step, "num_steps": config.num_steps, "objective": value}
        enough = False
        if bound is not None and problem.gap(bound, value) <= config.gap_tolerance:
            # Half-precision scores only suggest that this is near enough.
            bound = proof.of(ascent)
            enough = bound is not None and problem.gap(bound, value) <= config.gap_tolerance
        if bound is not None:
            record |= {"bound": bound, "gap": max(0.0, problem.gap(bound, value))}
        problem.report(record)
        problem.checkpoint.save({"ascent": ascent.state(), "proof": proof.state()})
        return enough

    state = problem.checkpoint.load()
    if state is None:
        start = start_at(relaxed, _first_mask(problem, config.sample_documents, dtype))
    else:
        start = Ascent.restore(state["ascent"])
        proof.restore(state.get("proof"))
    ascent = ascend(relaxed, start, config.num_steps, on_step)
    rounded_N, rounded = round_mask(ascent.weights_N, problem.statistics, objective, budget)
    bound = proof.of(ascent)
    goal = math.inf if bound is None else problem.value_at(config.gap_tolerance * ROUNDING_SHARE, bound)
    swapped = swap(
        rounded_N,
        problem.statistics,
        objective,
        budget,
        config.num_swap_rounds,
        dtype,
        goal,
        proof.gradient_N,
    )
    mask_N = swapped.mask_N
    if budget.tokens:
        # Swaps may have left tokens over.
        mask_N = filled(mask_N, ascent.weights_N, budget)
        if objective.value(mask_N, problem.statistics.moments(mask_N)) < rounded:
            mask_N = rounded_N
    return Solution(
        mask_N=mask_N,
        scores_N=proof.gradient_N,
        probabilities_N=ascent.weights_N,
        bound=bound,
        tangent_N=proof.tangent_N,
        method=_argument(problem, bound),
        notes={
            "steps": ascent.step,
            "swaps": swapped.num_swaps,
            "fractional": int(((ascent.weights_N > 0) & (ascent.weights_N < 1)).sum()),
        },
    )


class Proof:
    """The bound at a relaxed mask from float32 scores, computed once for each mask asked about."""

    def __init__(self, problem: Problem, relaxed: RelaxedObjective) -> None:
        self.problem, self.relaxed = problem, relaxed
        self.gradient_N = torch.empty(0)
        self._step, self._best = -1, math.inf
        self.tangent_N: Tensor | None = None

    def of(self, ascent: Ascent) -> float | None:
        """The smallest bound so far, that of this mask included; none where there is none."""
        if ascent.step != self._step:
            self.gradient_N, form = self.relaxed.gradient(ascent.moments, torch.float32)
            self._step = ascent.step
            bound = self.relaxed.bound(self.gradient_N, form, ascent.moments)
            if bound is not None and bound < self._best:
                self._best, self.tangent_N = bound, ascent.weights_N
        return None if self.tangent_N is None else self._best

    def state(self) -> dict[str, Any]:
        """The smallest bound so far and where it was found, for a checkpoint."""
        return {"best": self._best, "tangent_N": self.tangent_N}

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Go on from `state`; a checkpoint of an earlier version has a bound, but not where it was found."""
        if state is not None:
            self._best, self.tangent_N = state["best"], state["tangent_N"]


def _first_mask(problem: Problem, sample_documents: int, dtype: torch.dtype) -> Tensor:
    """Where to start: the best documents by quality; in larger blocks, by the statistics learnt on a sample."""
    objective, budget, seed = problem.moment_objective, problem.budget, problem.config.seed
    if problem.num_rows <= 2 * sample_documents or budget.tokens or len(budget.limits) > 1:
        return budget.best(problem.objective.quality_N, exact=True)
    draws = generator(seed, "sample")
    index_n = torch.sort(torch.randperm(problem.num_rows, generator=draws)[:sample_documents]).values
    rows = MemoryRows(problem.rows.take(index_n), problem.rows.chunk_rows)
    sample = Statistics(
        rows=rows,
        workers=problem.workers,
        squared_N=problem.squared_N[index_n],
        needs_second=problem.objective.needs_second,
    )
    part = budget.part(index_n)
    function = replace(problem.objective, quality_N=problem.objective.quality_N[index_n])
    relaxed = RelaxedObjective(
        statistics=sample, objective=replace(objective, objective=function), budget=part, dtype=dtype
    )
    start = start_at(relaxed, part.best(function.quality_N, exact=True))
    learnt = ascend(relaxed, start, SAMPLE_STEPS, lambda *_: False).moments
    whole = _scaled(learnt, budget.limits[0] / learnt.count)
    gradient_N = objective.linear_N(whole.count) + problem.statistics.scores(
        objective.relaxed_form(whole), dtype
    )
    return budget.best(gradient_N)


def _scaled(moments: Moments, factor: float) -> Moments:
    return moments.plus(moments, factor - 1)


def _argument(problem: Problem, bound: float | None) -> str:
    if bound is not None:
        return (
            "Frank-Wolfe: the concave relaxation's tangent at the relaxed optimum, maximised over all masks"
        )
    if problem.budget.tokens:
        return "no bound: a budget in tokens lets the number of documents vary, the relaxation is not concave"
    names = [t.name for t, metric in problem.objective.moment_terms or () if not metric.concave]
    if names:
        return f"no bound: {', '.join(names)} is not concave in the relaxed mask"
    raise ConfigurationError("a concave objective in documents has a bound")
