"""Learning a large block by those of its documents that may be in or out: the others are held. Knows no metric.

A sample's statistics say of most documents whether they are in. The band around that threshold is learnt, rounded and
swapped beside what is surely in; then one float32 pass over the block measures the mask, proves it against all masks of
the block, and shows whether a document beside the band stands on the wrong side. If so, a new band is learnt. What a
killed run has learnt of bands is learnt again.

Shape suffixes: N documents, B documents of a band, D embedding dimensions.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import Moments
from datamask_pipeline.selection.budget import Budget, highest
from datamask_pipeline.selection.evaluation import Evaluation, evaluate
from datamask_pipeline.selection.moments.newton import climb
from datamask_pipeline.selection.moments.relaxed import Ascent, RelaxedObjective, start_at
from datamask_pipeline.selection.moments.rounding import round_mask
from datamask_pipeline.selection.moments.statistics import Statistics
from datamask_pipeline.selection.moments.swaps import GOAL_SHARE, SwapResult, swap
from datamask_pipeline.selection.objective import MomentObjective
from datamask_pipeline.selection.policies.datamask import DataMaskConfig
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.solution import TANGENT, Solution

LEAST_BAND, BAND_SHARE = 16_384, 1 / 16
"""Documents of a band: so many at least, and of a larger block this share."""
LEAST_SELECTED = 1024
"""Of fewer documents a sample selects too few to say who may be in."""
MOST_BANDS, BAND_STEPS = 8, 10
"""Bands learnt one after another, and steps within each where second moments are summed: others cost little."""
SETTLED = 1e-3
"""A band that raises the relaxed mask's distance from random by a smaller share than this, and could still climb, is the
last."""
SWAP_ROUNDS = 4
"""Times the rounds of swaps of a block: a band is read for less."""
BAND_GAP = 0.5
"""The ascent within a band ends at this share of the gap that is asked for."""


@dataclass(frozen=True, kw_only=True)
class Band:
    """The part of a block that is still open, as a problem of its own beside what is in.

    Attributes:
        index_B: Its documents, ascending.
        inside_N: bool, the documents beside it that are in.
        relaxed: The problem.
    """

    index_B: Tensor
    inside_N: Tensor
    relaxed: RelaxedObjective

    @staticmethod
    def suits(problem: Problem) -> bool:
        """Whether a band is much less than the block, and certificates hold: second derivatives are the same everywhere."""
        objective, budget = problem.moment_objective, problem.budget
        return (
            objective.quadratic
            and objective.concave
            and not budget.tokens
            and len(budget.limits) == 1
            and not objective.levels(budget.num_documents, problem.rows.dim)
            and problem.num_rows > 2 * LEAST_BAND
            and budget.limits[0] >= LEAST_SELECTED
            and not budget.takes_everything
        )

    @classmethod
    def around(cls, problem: Problem, gradient_N: Tensor, weights_N: Tensor) -> Band:
        """The documents nearest the threshold on both sides, and those that a relaxed mask has in part or on the wrong side.

        Args:
            gradient_N: What orders documents.
            weights_N: The relaxed mask.
        """
        size = max(LEAST_BAND, round(BAND_SHARE * problem.num_rows))
        count = int(problem.budget.limits[0])
        start = max(0, min(count - size // 2, problem.num_rows - size))
        above_N, not_below_N = (highest(gradient_N, number) for number in (start, start + size))
        in_band_N = torch.where(above_N, weights_N < 1, not_below_N | (weights_N > 0))
        index_B, inside_N = torch.nonzero(in_band_N).squeeze(1), (weights_N > 0) & ~in_band_N
        return cls(index_B=index_B, inside_N=inside_N, relaxed=_beside(problem, index_B, inside_N))

    def whole(self, weights_B: Tensor) -> Tensor:
        """A mask of the block from one of the band."""
        weights_N = self.inside_N.to(weights_B.dtype)
        weights_N[self.index_B] = weights_B
        return weights_N


def choose_in_bands(problem: Problem, config: DataMaskConfig, learnt: Moments) -> Solution:
    """Learn a band, and others around the threshold that shows then; round, swap and prove where no more is to learn.

    Args:
        learnt: Moments of about the best mask.
    """
    objective, statistics, budget = problem.moment_objective, problem.statistics, problem.budget
    whole = RelaxedObjective(statistics=statistics, objective=objective, budget=budget, dtype=problem.dtype)
    gradient_N, _ = whole.coarse_gradient(learnt)
    weights_N = budget.best(gradient_N).to(torch.float64)
    best, notes, reached = Solution(mask_N=torch.empty(0), scores_N=gradient_N), Counter[str](), -math.inf
    for turn in range(1, MOST_BANDS + 1):
        band = Band.around(problem, gradient_N, weights_N)
        before_B = weights_N[band.index_B]
        ascent, (bound, tangent_B, tangent), is_done = _climbed(
            problem, config, band, before_B, notes["steps"]
        )
        weights_N = band.whole(ascent.weights_N)
        notes.update(steps=ascent.step)
        assert ascent.value is not None, "known before a step is tried"
        gained, reached = ascent.value - reached, ascent.value
        is_settled = not is_done and gained < SETTLED * (reached - problem.random_value)
        is_last = is_settled or turn == MOST_BANDS
        if not is_done and not is_last:
            gradient_N, _ = whole.coarse_gradient(ascent.moments)
            continue
        swapped = _swapped(problem, config, band, ascent, bound)
        notes.update(swaps=swapped.num_swaps)
        solution = Solution(mask_N=band.whole(swapped.mask_N), scores_N=gradient_N)
        evaluation = evaluate(problem, solution, swapped.moments)
        gradient_N = gradient_at(problem, evaluation, swapped.moments, solution.mask_N)
        proved = bound_at(whole, tangent, swapped.moments, solution.mask_N, gradient_N)
        if best.bound is None or proved < best.bound:
            best = replace(best, bound=proved, tangent_N=band.whole(tangent_B), probabilities_N=weights_N)
        if best.evaluation is None or evaluation.value > best.evaluation.value:
            best = replace(best, mask_N=solution.mask_N, scores_N=gradient_N, evaluation=evaluation)
        assert best.bound is not None
        assert best.evaluation is not None
        if is_last or problem.gap(best.bound, best.evaluation.value) <= config.gap_tolerance:
            break
    notes["fractional"] = int(((weights_N > 0) & (weights_N < 1)).sum())
    return replace(best, method=TANGENT, converged=is_done or is_settled, notes=dict(notes))


def _climbed(
    problem: Problem, config: DataMaskConfig, band: Band, weights_B: Tensor, num_before: int
) -> tuple[Ascent, tuple[float, Tensor, Moments], bool]:
    """The relaxed mask of a band; its bound within the band with the weights and moments of its tangent; and whether
    steps within it bring no more."""
    relaxed, dear = band.relaxed, problem.objective.needs_second
    num_steps = min(config.num_steps, BAND_STEPS) if dear else config.num_steps

    proved: dict[int, tuple[float, Tensor, Moments]] = {}

    def exact(ascent: Ascent) -> tuple[float, Tensor, Moments]:
        if ascent.step in proved:
            return proved[ascent.step]
        found = []
        for weights_B, moments in ((ascent.weights_N, ascent.moments), (ascent.dual_N, ascent.dual)):
            if weights_B is not None and moments is not None:
                bound = relaxed.bound(*relaxed.gradient(moments, torch.float32), moments)
                assert bound is not None, "concave, and documents are counted"
                found.append((bound, weights_B, moments))
        proved[ascent.step] = min(found, key=lambda one: one[0])
        return proved[ascent.step]

    def on_step(ascent: Ascent, value: float, bound: float | None) -> bool:
        assert bound is not None, "concave, and documents are counted"
        gap = problem.gap(bound, value)
        if gap <= BAND_GAP * config.gap_tolerance:
            # Coarse scores only suggest that this is near enough.
            gap = problem.gap(exact(ascent)[0], value)
        record = {"step": num_before + ascent.step, "num_steps": MOST_BANDS * num_steps, "objective": value}
        problem.report(record | {"bound": bound, "gap": max(0.0, gap)})
        return gap <= BAND_GAP * config.gap_tolerance

    ascent = climb(relaxed, start_at(relaxed, weights_B), num_steps, on_step)
    return ascent, exact(ascent), ascent.step < num_steps


def _swapped(
    problem: Problem, config: DataMaskConfig, band: Band, ascent: Ascent, bound: float
) -> SwapResult:
    """The band's mask, rounded and swapped until it is near enough to the bound."""
    statistics, objective, budget = (
        band.relaxed.statistics,
        band.relaxed.objective,
        band.relaxed.budget,
    )
    rounded_B, _ = round_mask(ascent.weights_N, statistics, objective, budget, ascent.moments)
    return swap(
        rounded_B,
        statistics,
        objective,
        budget,
        SWAP_ROUNDS * config.num_swap_rounds,
        problem.dtype,
        problem.value_at(GOAL_SHARE * config.gap_tolerance, bound),
        moments=statistics.moved(ascent.moments, ascent.weights_N, rounded_B),
    )


def _beside(problem: Problem, index_B: Tensor, inside_N: Tensor) -> RelaxedObjective:
    objective, statistics, budget = problem.objective, problem.statistics, problem.budget
    num_inside = int(inside_N.sum())
    part = Statistics(
        rows=problem.rows.copied(index_B, problem.room),
        workers=problem.workers,
        squared_N=problem.squared_N[index_B],
        needs_second=objective.needs_second,
        held=statistics.moments(inside_N),
    )
    function = replace(
        objective,
        quality_N=objective.quality_N[index_B],
        held_count=objective.held_count + num_inside,
        held_quality=objective.held_quality + float(objective.quality_N[inside_N].sum()),
    )
    left = Budget(
        costs_N=budget.costs_N[index_B],
        groups_N=budget.groups_N[index_B],
        limits=(budget.limits[0] - num_inside,),
        tokens=False,
        seed=budget.seed,
    )
    return RelaxedObjective(
        statistics=part, objective=MomentObjective(objective=function), budget=left, dtype=problem.dtype
    )


def gradient_at(problem: Problem, evaluation: Evaluation, moments: Moments, mask_N: Tensor) -> Tensor:
    """The derivative by each document at a mask that was measured, which its marginals hold."""
    own_N = problem.moment_objective.self_products_N(moments, problem.squared_N)
    signs_N = mask_N.to(torch.float64).mul_(2).sub_(1)
    return evaluation.quality_N + evaluation.diversity_N - signs_N * own_N


def bound_at(
    relaxed: RelaxedObjective, tangent: Moments, near: Moments, mask_N: Tensor, gradient_N: Tensor
) -> float:
    """The bound of the tangent at some moments, from the derivative at others that are near.

    The derivatives of two masks differ by a form whose values are bounded by its norm: who is not within twice that of
    the threshold is surely in or out, and those who are in count by their moments.

    Args:
        relaxed: Of the block.
        tangent: Where the bound is taken.
        near: Those of `mask_N`, where `gradient_N` is the derivative.
        mask_N: bool.
        gradient_N: float32 products, summed in float64.
    """
    objective, statistics = relaxed.objective, relaxed.statistics
    form = objective.relaxed_form(tangent)
    change = form.plus(objective.relaxed_form(near).scaled(-1))
    room = 2 * change.largest(float(statistics.squared_N.max()))
    count = int(relaxed.budget.limits[0])
    threshold = float(torch.topk(gradient_N, count, sorted=True).values[-1])
    sure_N = gradient_N > threshold + room
    open_n = torch.nonzero(~sure_N & (gradient_N >= threshold - room)).squeeze(1)
    open_scores_n = gradient_N[open_n] + statistics.scores(change, index_n=open_n)
    num_open = count - int(sure_N.sum())
    sure = statistics.moved(near, mask_N, sure_N)
    if statistics.held is not None:
        sure = sure.plus(statistics.held, -1)
    most = float(gradient_N[sure_N].sum()) + change.total(sure)
    most += float(torch.topk(open_scores_n, num_open, sorted=False).values.sum())
    return relaxed.bound_of(most, form, tangent)
