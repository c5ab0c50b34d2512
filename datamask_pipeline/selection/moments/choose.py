"""The learner for metrics of moments: projected gradient on the relaxed mask, rounding, swaps, certificate.

Knows no input format and no report. Shape suffixes: N documents.

The better of two roundings begins the swaps; where every metric is concave, the linearisation at the relaxed
optimum certifies the result. Where a block is small enough, greedy and exchanges of documents are tried as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import Moments
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.moments.band import Band, choose_in_bands
from datamask_pipeline.selection.moments.ceiling import ceiling
from datamask_pipeline.selection.moments.exchanges import Exchanges
from datamask_pipeline.selection.moments.newton import climb
from datamask_pipeline.selection.moments.relaxed import Ascent, RelaxedObjective, start_at
from datamask_pipeline.selection.moments.rounding import filled, round_mask
from datamask_pipeline.selection.moments.search import Best, round_anew, search_on
from datamask_pipeline.selection.moments.statistics import Statistics
from datamask_pipeline.selection.moments.swaps import GOAL_SHARE, swap
from datamask_pipeline.selection.policies.datamask import DataMaskConfig
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.rows import MemoryRows
from datamask_pipeline.selection.seeds import generator
from datamask_pipeline.selection.solution import TANGENT, TANGENT_IN_TOKENS, Solution

SAMPLE_STEPS, SAMPLE_GAP = 12, 0.002
"""A sample is learnt so long, or so near: what it lacks the block shows."""
CHEAPER = 4
"""Times the steps where no second moments are summed."""
SETTLED, WIDE = 0.05, 256
"""Where a mask is known, the ascent ends where all that is left to climb is this share of its distance from the bound;
from so many dimensions on, where eigenvalues take longer than all else."""


def choose_by_moments(problem: Problem, config: DataMaskConfig, *, exchanging: bool = True) -> Solution:
    """Projected gradient, rounding, swaps, certificate; of a large block, among the documents that may be in or out.

    Args:
        problem: What is to be chosen.
        config: How far.
        exchanging: Whether a small block is also exchanged document by document, which wins the last and takes longest.
    """
    if Band.suits(problem):
        return choose_in_bands(problem, config, _learnt_on_sample(problem, config.sample_documents))
    objective, budget = problem.moment_objective, problem.budget
    # Without second moments a step only reads the rows: half the bytes would cost the bound its accuracy.
    dtype = problem.dtype if problem.objective.needs_second else torch.float32
    relaxed = RelaxedObjective(statistics=problem.statistics, objective=objective, budget=budget, dtype=dtype)
    proof = Proof(problem, relaxed)
    exchanging &= config.num_swap_rounds > 0
    exchanges = Exchanges.of(problem.statistics, objective, budget) if exchanging else None
    known = Best.of_moments(problem)
    is_small = not budget.tokens and budget.num_documents < problem.rows.dim
    if exchanges is not None and (is_small or not objective.quadratic):
        # Few documents are far from any relaxed mask: these often end higher, and they cost little.
        for start_N in exchanges.starts():
            known.offer(exchanges.improved(start_N))

    cheap = not problem.objective.needs_second
    by_newton = cheap and budget.tokens
    num_steps = config.num_steps * (CHEAPER if cheap else 1)
    # Fewer documents than dimensions: no mask reaches what a relaxed one does, however far that is learnt.
    unreached = known.found and budget.num_documents < problem.rows.dim

    def on_step(ascent: Ascent, value: float, bound: float | None) -> bool:
        record = {"step": ascent.step, "num_steps": num_steps, "objective": value}
        enough = False
        if bound is not None and (by_newton or problem.gap(bound, value) <= config.gap_tolerance):
            # Coarse scores only suggest that this is near enough; in tokens the last bound need not be the least.
            bound = proof.of(ascent)
            enough = bound is not None and problem.gap(bound, value) <= config.gap_tolerance
        if bound is not None and unreached and problem.rows.dim >= WIDE:
            enough |= bound - value < SETTLED * (bound - known.value)
        if bound is not None:
            record |= {"bound": bound, "gap": max(0.0, problem.gap(bound, value))}
        problem.report(record)
        problem.checkpoint.save({"ascent": ascent.state(), "proof": proof.state()})
        return enough

    state = problem.checkpoint.load()
    if state is None:
        sample = config.sample_documents
        start = start_at(relaxed, known.mask_N if unreached else _first_mask(problem, sample, dtype))
        if problem.start_N is not None:
            start = start_at(relaxed, problem.start_N)
    else:
        start = Ascent.restore(state["ascent"])
        proof.restore(state.get("proof"))
    ascent = climb(relaxed, start, num_steps, on_step)
    rounded_N, _ = round_mask(ascent.weights_N, problem.statistics, objective, budget, ascent.moments)
    bound = proof.of(ascent)
    goal = math.inf if bound is None else problem.value_at(config.gap_tolerance * GOAL_SHARE, bound)
    num_rounds = config.num_swap_rounds
    swapped = swap(
        rounded_N, problem.statistics, objective, budget, num_rounds, dtype, goal, proof.gradient_N
    )
    known.offer(swapped.mask_N)
    if exchanges is not None and (bound is None or problem.gap(bound, known.value) > config.gap_tolerance):
        known.offer(exchanges.improved(swapped.mask_N))
        if budget.tokens and objective.quadratic:
            round_anew(exchanges, known, config.num_restarts, ascent.weights_N)
        elif not budget.tokens:
            search_on(exchanges, known, config)
    if budget.tokens:
        # Swaps and exchanges may have left tokens over.
        whole_N = filled(known.mask_N, ascent.weights_N, budget)
        known = Best.of_moments(problem)
        known.offer(whole_N)
        known.offer(rounded_N)
    if bound is None:
        bound = ceiling(problem.statistics, objective, budget)
    return Solution(
        mask_N=known.mask_N,
        scores_N=proof.gradient_N,
        probabilities_N=ascent.weights_N,
        bound=bound,
        tangent_N=proof.tangent_N,
        method=_argument(problem, bound),
        converged=ascent.step < num_steps,
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
            if ascent.dual_N is not None:
                # Its moments were followed through many steps: the bound is that of the weights, summed anew.
                moments = self.problem.statistics.moments(ascent.dual_N)
                bound = self.relaxed.bound(*self.relaxed.gradient(moments, torch.float32), moments)
                if bound is not None and bound < self._best:
                    self._best, self.tangent_N = bound, ascent.dual_N
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
    objective, budget = problem.moment_objective, problem.budget
    if problem.num_rows <= 2 * sample_documents or budget.tokens or len(budget.limits) > 1:
        return budget.best(problem.objective.quality_N, exact=True)
    whole = _learnt_on_sample(problem, sample_documents)
    gradient_N = objective.linear_N(whole.count) + problem.statistics.scores(
        objective.relaxed_form(whole), dtype, coarse=True
    )
    return budget.best(gradient_N)


def _learnt_on_sample(problem: Problem, sample_documents: int) -> Moments:
    """Moments of the mask that a sample of the block learns, as they would be of the block's."""
    objective, budget, seed = problem.moment_objective, problem.budget, problem.config.seed
    draws = generator(seed, "sample")
    index_n = torch.sort(torch.randperm(problem.num_rows, generator=draws)[:sample_documents]).values
    rows = MemoryRows(problem.rows.take(index_n), problem.rows.chunk_rows)
    part = budget.part(index_n)
    share = part.limits[0] / budget.limits[0]
    sample = Statistics(
        rows=rows,
        workers=problem.workers,
        squared_N=problem.squared_N[index_n],
        needs_second=problem.objective.needs_second,
        held=None if problem.held is None else _scaled(problem.held, share),
    )
    function = replace(
        problem.objective,
        quality_N=problem.objective.quality_N[index_n],
        held_count=problem.objective.held_count * share,
        held_in_part=problem.held is not None,
        held_quality=problem.objective.held_quality * share,
    )
    relaxed = RelaxedObjective(
        statistics=sample,
        objective=replace(objective, objective=function),
        budget=part,
        dtype=problem.dtype,
    )
    return learnt_on(relaxed, problem.gap, budget.limits[0] + problem.objective.held_count)


def learnt_on(sample: RelaxedObjective, gap: Callable[[float, float], float], count: float) -> Moments:
    """Moments of the mask that a sample learns from the best by quality on, as they would be of so many documents.

    Args:
        sample: The sample as a problem of its own.
        gap: Of a bound and a value.
        count: Documents of the mask and held.
    """
    quality_n = sample.objective.objective.quality_N
    start = start_at(sample, sample.budget.best(quality_n, exact=True))

    def near_enough(_: Ascent, value: float, bound: float | None) -> bool:
        return bound is not None and gap(bound, value) <= SAMPLE_GAP

    learnt = climb(sample, start, SAMPLE_STEPS, near_enough).moments
    return _scaled(learnt, count / learnt.count)


def _scaled(moments: Moments, factor: float) -> Moments:
    return moments.plus(moments, factor - 1)


def _argument(problem: Problem, bound: float | None) -> str:
    if bound is not None and not problem.moment_objective.concave:
        return "rank: so many documents span no more directions, and correlate least where all count alike; best quality"
    if bound is not None:
        return TANGENT_IN_TOKENS if problem.budget.tokens else TANGENT
    terms = problem.objective.moment_terms or ()
    names = [term.name for term, metric in terms if not metric.concave]
    if names:
        return f"no bound: {', '.join(names)} is not concave in the relaxed mask"
    if problem.budget.tokens:
        names = [term.name for term, _ in terms]
        return f"no bound: {', '.join(names)} does not say what fewer documents of the same shares gain"
    raise ConfigurationError("a concave objective in documents has a bound")
