"""The relaxed mask by spectral projected gradient. Knows no rounding, file or policy.

Shape suffixes: N documents, D embedding dimensions.

Moments are linear in the mask, so the objective on the whole segment between two masks follows from the moments
of its ends: each step searches its segment exactly, without reading the block again. Step lengths are Barzilai
and Borwein's long ones, later long and short ones in turn (Birgin, Martinez and Raydan 2000; Dai and Fletcher 2005);
the objective never falls, concave or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import LinearForm, Moments
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.budget import TIE, Budget
from datamask_pipeline.selection.full_masks import FullMasks
from datamask_pipeline.selection.moments.statistics import Statistics
from datamask_pipeline.selection.objective import MomentObjective

LONG_STEPS = 10
"""Steps before short ones take turns with long ones where second moments are summed; easy blocks end earlier, and so
does the scale's proxy. First moments alone are climbed as fast by long ones, and end higher."""
SEGMENT_TOLERANCE = 1e-5
"""How near to the best point of a segment the search ends, as a share of the segment's length."""
NEAR_PEAK = 0.05
"""Where values are dear: a second parabola's peak that differs from the first's by less than this share is not tried."""


@dataclass(kw_only=True)
class Ascent:
    """Where the ascent stands; all of it goes into a checkpoint."""

    weights_N: Tensor
    moments: Moments
    value: float | None = None
    step: int = 0
    step_length: float = 0.0
    previous_N: Tensor | None = None
    gradient_N: Tensor | None = None
    """Where the ascent came from, and the derivative there; by Newton's steps that at `dual`."""
    dual_N: Tensor | None = None
    dual: Moments | None = None
    """Where the last mask's dual problem was solved, by Newton's steps: weights of any sign that sum to the budget."""

    def state(self) -> dict[str, Any]:
        """Tensors and plain values."""
        dual = None if self.dual is None else dict(vars(self.dual))
        return {**vars(self), "moments": dict(vars(self.moments)), "dual": dual}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Ascent:
        """The ascent from `state`."""
        dual = None if state.get("dual") is None else Moments(**state["dual"])
        return cls(**{**state, "moments": Moments(**state["moments"]), "dual": dual})


@dataclass(frozen=True, kw_only=True)
class RelaxedObjective:
    """The objective over relaxed masks of one block: value, gradient, bound."""

    statistics: Statistics
    objective: MomentObjective
    budget: Budget
    dtype: torch.dtype

    def gradient(self, moments: Moments, dtype: torch.dtype) -> tuple[Tensor, LinearForm]:
        """The derivative by each document at a fixed count; centred for tokens, where the count moves too."""
        form = self.objective.relaxed_form(moments)
        gradient_N = self.objective.linear_N(moments.count) + self.statistics.scores(form, dtype)
        return gradient_N, form

    def coarse_gradient(self, moments: Moments) -> tuple[Tensor, LinearForm]:
        """The same as a search needs it: it shows a way and proves nothing."""
        form = self.objective.relaxed_form(moments)
        scores_N = self.statistics.scores(form, self.dtype, coarse=True)
        return self.objective.linear_N(moments.count) + scores_N, form

    def direction(self, gradient_N: Tensor, form: LinearForm, weights_N: Tensor, moments: Moments) -> Tensor:
        """The gradient to follow, free of what all documents share: a projection only has to undo that.

        With tokens a mask may grow: what counts is being better than the mean, and what more documents are worth by
        themselves.

        Args:
            moments: Of the weights.
        """
        if not self.budget.tokens:
            return gradient_N - gradient_N.median()
        total, count = float(weights_N @ gradient_N), float(weights_N.sum())
        if self.statistics.held is not None:
            count += self.statistics.held.count
            total += self._held_part(form, count)
        return gradient_N - total / count + self.objective.growth(moments)

    def _held_part(self, form: LinearForm, count: float) -> float:
        """What the linearisation gives the documents held, quality included."""
        if self.statistics.held is None:
            return 0.0
        quality = self.objective.objective.held_quality * self.objective.objective.lamb / count
        return form.total(self.statistics.held) + quality

    def bound(self, gradient_N: Tensor, form: LinearForm, moments: Moments) -> float | None:
        """The linearisation's maximum over all masks, in tokens all full ones; none where the relaxation is not concave.

        The moments may be any point of the metrics' domain: the tangent of a concave function lies above it
        everywhere, so errors in the moments loosen the bound and cannot break it. The scores must be accurate.
        """
        if not self.objective.concave:
            return None
        if self.budget.tokens:
            return self._bound_in_tokens(gradient_N, form, moments)
        return self.bound_of(self.budget.most(gradient_N), form, moments)

    def _bound_in_tokens(self, gradient_N: Tensor, form: LinearForm, moments: Moments) -> float | None:
        """The same where the number of documents is free: concave in each document's share of the selection.

        A metric says what fewer documents of the same shares may add. None where one does not.
        Source: Charnes and Cooper 1962 (a ratio becomes linear in shares).
        """
        held, count = self.statistics.held, moments.count
        beside = 0.0 if held is None else held.count
        least = min(self._full.fewest + beside, count)
        gain = self.objective.gain_of_fewer(count, least)
        if gain is None:
            return None
        scores_N, added = count * gradient_N, count * self._held_part(form, count)
        most = self._full.largest_mean(scores_N, added, beside)
        if gain and least < count:
            gain *= self._largest_variance(moments)
            most = max(most, self._full.largest_mean(scores_N, added + gain, beside) - gain / count)
        function = self.objective.objective
        diversity = (1 - function.lamb) * function.diversity(self.objective.raw(moments))
        return diversity - form.total(moments) + most

    @cached_property
    def _full(self) -> FullMasks:
        return FullMasks(self.budget.costs_N, self.budget.limits[0])

    def _largest_variance(self, moments: Moments) -> float:
        """No full mask, what is held included, has a larger mean of ``|x_i|^2`` less the square of the mean's norm."""
        mean_D, held = moments.first_D / moments.count, self.statistics.held
        form = LinearForm(vector_D=-2 * mean_D, matrix_DD=None, squared=1.0)
        scores_N = self.statistics.scores(form, torch.float32)
        added, beside = (0.0, 0.0) if held is None else (form.total(held), held.count)
        return self._full.largest_mean(scores_N, added, beside) + float(mean_D @ mean_D)

    def bound_of(self, most: float, form: LinearForm, moments: Moments) -> float:
        """The same from the largest sum of the gradient over any mask."""
        inner = form.total(moments) - self._held_part(form, moments.count)
        function = self.objective.objective
        diversity = (1 - function.lamb) * function.diversity(self.objective.relaxed_raw(moments))
        return diversity - inner + most


def ascend(
    problem: RelaxedObjective,
    ascent: Ascent,
    num_steps: int,
    on_step: Callable[[Ascent, float, float | None], bool],
) -> Ascent:
    """Climb until `on_step` says enough or the steps are used up.

    Args:
        problem: The objective.
        ascent: Where to start; a fresh one or a restored one.
        num_steps: Most steps in all.
        on_step: Gets the ascent, its objective and its (approximate) bound before each step; true ends it.

    Raises:
        ConfigurationError: the objective became NaN or infinite.
    """
    while ascent.step < num_steps:
        if ascent.value is None:
            ascent.value = problem.objective.relaxed_value(ascent.weights_N, ascent.moments)
        gradient_N, form = problem.coarse_gradient(ascent.moments)
        if not torch.isfinite(gradient_N).all():
            raise ConfigurationError(
                "the objective's gradient is not finite; a diversity metric returned NaN or infinity"
            )
        if on_step(ascent, ascent.value, problem.bound(gradient_N, form, ascent.moments)):
            break
        direction_N = problem.direction(gradient_N, form, ascent.weights_N, ascent.moments)
        turns = problem.statistics.needs_second and ascent.step > LONG_STEPS
        length = min(_step_length(ascent, direction_N, turns), longest_step(gradient_N))
        target_N = problem.budget.project(ascent.weights_N + length * direction_N)
        target = problem.statistics.moved(ascent.moments, ascent.weights_N, target_N)
        segment = Segment(problem.objective, ascent, target_N, target)
        slope = float(direction_N @ (target_N - ascent.weights_N))
        share, ascent.value = segment.best_by(slope, problem.budget.tokens)
        ascent.previous_N, ascent.gradient_N, ascent.step_length = ascent.weights_N, direction_N, length
        if share == 1.0:
            ascent.weights_N, ascent.moments = target_N, target
        else:
            ascent.weights_N = (1 - share) * ascent.weights_N + share * target_N
            ascent.moments = _between(ascent.moments, target, share)
        ascent.step += 1
        if share == 0.0:
            break
    return ascent


def _step_length(ascent: Ascent, direction_N: Tensor, turns: bool) -> float:
    """Barzilai and Borwein's long step, with its short one in turns; the first moves the median document by half."""
    if ascent.previous_N is not None and ascent.gradient_N is not None:
        moved_N, fallen_N = ascent.weights_N - ascent.previous_N, ascent.gradient_N - direction_N
        bent = float(moved_N @ fallen_N)
        if bent > 0:
            # Long steps alone go to and fro where the curvature differs much between directions.
            short = turns and ascent.step % 2 == 0
            return bent / float(fallen_N @ fallen_N) if short else float(moved_N @ moved_N) / bent
        return ascent.step_length * 4
    return first_step_length(direction_N)


def first_step_length(gradient_N: Tensor) -> float:
    """A step that moves the median document by half."""
    spread = float((gradient_N - gradient_N.median()).abs().median())
    return 0.5 / spread if spread > 0 else 1.0


def longest_step(gradient_N: Tensor) -> float:
    """A step that moves a document by one for what float32 products do not resolve: longer ones follow noise."""
    largest = float(gradient_N.abs().max())
    return 1 / (TIE * largest) if largest > 0 else 1.0


def _between(left: Moments, right: Moments, share: float) -> Moments:
    return left.plus(left, -share).plus(right, share)


class Segment:
    """The objective between two masks, from the moments of its ends."""

    def __init__(self, objective: MomentObjective, ascent: Ascent, target_N: Tensor, target: Moments) -> None:
        assert ascent.value is not None, "known before a step is tried"
        self.objective, self.left, self.right, self.start = objective, ascent.moments, target, ascent.value
        quality_N, held = objective.objective.quality_N, objective.objective.held_quality
        self.quality_left, self.quality_right = (
            float(ascent.weights_N @ quality_N) + held,
            float(target_N @ quality_N) + held,
        )

    def value(self, share: float) -> float:
        """The objective at this share of the way."""
        moments = _between(self.left, self.right, share)
        quality = ((1 - share) * self.quality_left + share * self.quality_right) / moments.count
        function = self.objective.objective
        return function.combine(quality, function.diversity(self.objective.relaxed_raw(moments)))

    def best(self) -> tuple[float, float]:
        """The share with the best objective, to `SEGMENT_TOLERANCE` where there is one peak, and that objective.

        Source: Brent 1973, parabolas safeguarded by golden section. The end is taken where the objective rises there.
        """
        end = self.value(1.0)
        if self.value(0.98) <= end:
            return 1.0, end
        from scipy.optimize import minimize_scalar  # half a second, and few metrics need it

        found = minimize_scalar(
            lambda share: -self.value(share),
            bounds=(0.0, 1.0),
            method="bounded",
            options={"xatol": SEGMENT_TOLERANCE},
        )
        return self._better([(float(found.x), -float(found.fun)), (1.0, end)])

    def best_by(self, slope: float, tokens: bool) -> tuple[float, float]:
        """By the search that suits the objective.

        Args:
            slope: The derivative along the segment at its start.
            tokens: Whether the count moves along it.
        """
        levelled = self.objective.levels(self.left.count, len(self.left.first_D))
        if self.objective.quadratic and not tokens and not levelled:
            return self.best_of_parabola()
        return self.best_of_few(slope) if self.objective.spectral or levelled else self.best()

    def best_of_parabola(self) -> tuple[float, float]:
        """The best point where the objective is a parabola, by its values at both ends and half way."""
        end, middle = self.value(1.0), self.value(0.5)
        bend = 2 * (end + self.start) - 4 * middle
        peak = _peak(end - self.start - bend, bend)
        return self._better([(1.0, end)] if peak >= 1 else [(1.0, end), (peak, self.value(peak))])

    def best_of_few(self, slope: float) -> tuple[float, float]:
        """The best of the end and the peaks of two parabolas, the first from the slope at the start."""
        end = self.value(1.0)
        peak = _peak(slope, end - self.start - slope)
        if peak >= 1:
            return self._better([(1.0, end)])
        tried = [(1.0, end), (peak, self.value(peak))]
        first = (tried[1][1] - self.start) / peak
        bend = (end - self.start - first) / (1 - peak)
        second = _peak(first - bend * peak, bend)
        if abs(second - peak) > NEAR_PEAK * peak and second < 1:
            tried.append((second, self.value(second)))
        return self._better(tried)

    def _better(self, tried: list[tuple[float, float]]) -> tuple[float, float]:
        share, best = max(tried, key=lambda pair: pair[1])
        return (share, best) if best > self.start else (0.0, self.start)


def _peak(slope: float, bend: float) -> float:
    """Where ``slope t + bend t^2`` is largest between the two ends, the start itself left out."""
    return min(1.0, max(SEGMENT_TOLERANCE, -slope / (2 * bend))) if bend < 0 else 1.0


def start_at(problem: RelaxedObjective, mask_N: Tensor) -> Ascent:
    """An ascent that starts at a mask."""
    weights_N = mask_N.to(torch.float64)
    return Ascent(weights_N=weights_N, moments=problem.statistics.moments(mask_N))
