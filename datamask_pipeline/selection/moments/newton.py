"""The relaxed mask of quadratic metrics by proximal points and Newton's steps. Knows no rounding, file or policy.

Shape suffixes: N documents, F those that a mask has in part.

The objective less the squared distance from a mask has a smooth dual: its variable is a point of the moments, and the mask
that belongs to it is the projection of a step along the derivative there. Newton's system for that point has one row for
each document that the mask has in part, however many dimensions moments have. A step is long from the first on, and gets
longer, so that few of these points are enough where gradients alone go to and fro.

Long steps make much of small differences, so that derivatives are float64 products: equal documents stay equal.

Source: Rockafellar 1976 (proximal points); Li, Sun and Toh 2018 (arXiv 1607.05428: Newton's system on those in part).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import LinearForm, Moments
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.moments.relaxed import (
    Ascent,
    RelaxedObjective,
    Segment,
    ascend,
    first_step_length,
    longest_step,
)

LONGER_FIRST, LONGER = 8.0, 4.0
"""The first step, in those that move the median document by half, and how much longer each is than the last."""
NEAR = 0.1
"""The point is near enough where what it lacks is this share of what the mask there gains."""
SHORTER = 4 * LONGER
"""The same where the last one gained nothing."""
MOST_INNER = 20
"""Newton's steps for one point."""
RESIDUAL, MOST_PRODUCTS = 1e-3, 200
"""The system is solved to this share of its right side, by conjugate gradients of so many products at most."""
SETTLED = 1e-7
"""In tokens the ascent ends where a point gains less: bounds, which are of full masks, need not meet it."""
FEWEST = 2.0
"""Documents of which a tangent is a bound in tokens."""
LEAST_LENGTH = 1 / 1024
"""Of a Newton step, the first tried being 1."""


@dataclass(frozen=True, kw_only=True)
class _Point:
    """A point of the moments: the derivative there, the mask that belongs to it, and what the dual is worth.

    It is that of some weights, of any sign, that sum to the budget.
    """

    weights_N: Tensor
    moments: Moments
    gradient_N: Tensor
    form: LinearForm
    mask_N: Tensor
    value: float


@dataclass(frozen=True, kw_only=True)
class _Counted:
    """The objective at a number of documents, where it is quadratic. In tokens, where that number is free, it is the one of
    a mask: whoever has more or fewer is told as if these were as that mask's are in the mean, and by what each is worth.

    Attributes:
        problem: The objective.
        base: Moments of that mask and of what is held; none where the budget counts documents.
        quality: Its documents' mean quality.
        growth: What one document more is worth by itself, see `MomentMetric.growth`.
        own: Documents of the mask.
    """

    problem: RelaxedObjective
    base: Moments | None = None
    quality: float = 0.0
    growth: float = 0.0
    own: float = 0.0

    @classmethod
    def at(cls, problem: RelaxedObjective, ascent: Ascent) -> _Counted:
        """That of the mask where the ascent stands."""
        if not problem.budget.tokens:
            return cls(problem=problem)
        function, base = problem.objective.objective, ascent.moments
        quality = float(ascent.weights_N @ function.quality_N) + function.held_quality
        return cls(
            problem=problem,
            base=base,
            quality=quality / base.count,
            growth=problem.objective.growth(base),
            own=float(ascent.weights_N.sum()),
        )

    def told(self, moments: Moments) -> Moments:
        """These, as those of that many."""
        return moments if self.base is None else moments.plus(self.base, 1 - moments.count / self.base.count)

    def scores(self, form: LinearForm, index_n: Tensor) -> Tensor:
        """The form's of some documents, less the mask's mean."""
        scores_n = self.problem.statistics.scores(form, index_n=index_n)
        return scores_n if self.base is None else scores_n - form.total(self.base) / self.base.count

    def gradient(self, moments: Moments) -> Tensor:
        """The derivative by each document."""
        gradient_N, form = self.problem.gradient(self.told(moments), torch.float64)
        return gradient_N - self._level(form)

    def value(self, mask_N: Tensor, moments: Moments) -> float:
        """At a mask with these moments."""
        value = self.problem.objective.relaxed_value(mask_N, self.told(moments))
        return value + (self.growth - self._quality_of_one) * (float(mask_N.sum()) - self.own)

    def bound_of(self, most: float, form: LinearForm, moments: Moments) -> float:
        """See `RelaxedObjective.bound_of`."""
        return self.problem.bound_of(most, form, self.told(moments)) + self._level(form) * self.own

    @property
    def _quality_of_one(self) -> float:
        """What a document of the mask adds to the objective by its quality, in the mean."""
        return (
            0.0
            if self.base is None
            else self.problem.objective.objective.lamb * self.quality / self.base.count
        )

    def _level(self, form: LinearForm) -> float:
        """What the derivative gives a document of the mask in the mean, but for what one more is worth."""
        if self.base is None:
            return 0.0
        return form.total(self.base) / self.base.count + self._quality_of_one - self.growth


def climb(
    problem: RelaxedObjective,
    ascent: Ascent,
    num_steps: int,
    on_step: Callable[[Ascent, float, float | None], bool],
) -> Ascent:
    """`ascend_by_newton` for quadratic metrics of first moments, `relaxed.ascend` elsewhere."""
    objective = problem.objective
    fits = objective.quadratic and objective.concave and not problem.statistics.needs_second
    fits &= not problem.budget.tokens or objective.gain_of_fewer(3.0, 2.0) is not None
    return (ascend_by_newton if fits else ascend)(problem, ascent, num_steps, on_step)


def ascend_by_newton(
    problem: RelaxedObjective,
    ascent: Ascent,
    num_steps: int,
    on_step: Callable[[Ascent, float, float | None], bool],
) -> Ascent:
    """As `relaxed.ascend`, for a quadratic objective with a bound; each of Newton's steps counts as one.

    In tokens a step's objective is that of a fixed number of documents, and of what one more is worth.

    Raises:
        ConfigurationError: the objective became NaN or infinite.
    """
    while ascent.step < num_steps:
        if ascent.value is None:
            ascent.value = problem.objective.relaxed_value(ascent.weights_N, ascent.moments)
        gradient_N, form = problem.gradient(ascent.moments, torch.float64)
        if not torch.isfinite(gradient_N).all():
            raise ConfigurationError(
                "the objective's gradient is not finite; a diversity metric returned NaN or infinity"
            )
        bound = problem.bound(gradient_N, form, ascent.moments)
        if ascent.dual is not None and ascent.gradient_N is not None:
            if problem.budget.tokens:
                ascent.gradient_N, _ = problem.gradient(ascent.dual, torch.float64)
            dual_form = problem.objective.relaxed_form(ascent.dual)
            bound = min(bound, problem.bound(ascent.gradient_N, dual_form, ascent.dual), key=_or_infinite)
        if on_step(ascent, ascent.value, bound):
            break
        if ascent.dual is None:
            ascent.dual_N, ascent.dual, ascent.gradient_N = ascent.weights_N, ascent.moments, gradient_N
            ascent.step_length = LONGER_FIRST / LONGER * first_step_length(gradient_N)
        longest, before = longest_step(gradient_N), ascent.value
        ascent.step_length = min(LONGER * ascent.step_length, longest)
        target_N, target = _proximal(problem, ascent, _Counted.at(problem, ascent))
        segment = Segment(problem.objective, ascent, target_N, target)
        share, ascent.value = segment.best() if problem.budget.tokens else segment.best_of_parabola()
        if share == 1.0:
            ascent.weights_N, ascent.moments = target_N, target
        else:
            ascent.weights_N = (1 - share) * ascent.weights_N + share * target_N
            ascent.moments = _between(ascent.moments, target, share)
        if problem.budget.tokens and ascent.value < before + SETTLED:
            break
        if ascent.value <= before:
            ascent.step_length /= SHORTER
    return ascent


def _proximal(problem: RelaxedObjective, ascent: Ascent, counted: _Counted) -> tuple[Tensor, Moments]:
    """The mask that gains most less its squared distance from the ascent's, and its moments; steps are counted."""
    assert ascent.value is not None, "known before a step is tried"
    assert ascent.dual_N is not None
    assert ascent.dual is not None
    assert ascent.gradient_N is not None
    statistics, objective, length = problem.statistics, problem.objective, ascent.step_length

    def at(weights_N: Tensor, moments: Moments, gradient_N: Tensor) -> _Point:
        form = objective.relaxed_form(counted.told(moments))
        mask_N = problem.budget.project(ascent.weights_N + length * gradient_N)
        most = float(gradient_N @ mask_N) - distance(mask_N)
        value = counted.bound_of(most, form, moments)
        return _Point(
            weights_N=weights_N,
            moments=moments,
            gradient_N=gradient_N,
            form=form,
            mask_N=mask_N,
            value=value,
        )

    def distance(mask_N: Tensor) -> float:
        moved_N = mask_N - ascent.weights_N
        return float(moved_N @ moved_N) / (2 * length)

    first_N = ascent.gradient_N if counted.base is None else counted.gradient(ascent.dual)
    point = at(ascent.dual_N, ascent.dual, first_N)
    for turn in range(MOST_INNER):
        ascent.step += 1
        target = statistics.moved(ascent.moments, ascent.weights_N, point.mask_N)
        reached = counted.value(point.mask_N, target) - distance(point.mask_N)
        left = point.value - ascent.value
        if counted.base is None:
            bound = problem.bound(point.gradient_N, point.form, point.moments)
            assert bound is not None, "concave, and documents are counted"
            left = bound - max(reached, ascent.value)
        if point.value - reached <= NEAR * left or turn == MOST_INNER - 1:
            break
        weights_N, moments = _newton(counted, point, target, length)
        gradient_N = counted.gradient(moments)
        share = 1.0
        while share >= LEAST_LENGTH:
            tried = at(
                (1 - share) * point.weights_N + share * weights_N,
                _between(point.moments, moments, share),
                (1 - share) * point.gradient_N + share * gradient_N,
            )
            if tried.value < point.value:
                break
            share /= 2
        else:
            break
        point = tried
    ascent.dual_N, ascent.dual, ascent.gradient_N = point.weights_N, point.moments, point.gradient_N
    if counted.base is not None and float(point.weights_N.sum()) < FEWEST:
        ascent.dual_N, ascent.dual = point.mask_N, target
    return point.mask_N, target


def _newton(counted: _Counted, point: _Point, target: Moments, length: float) -> tuple[Tensor, Moments]:
    """Where the linearised dual has its least: the mask and a correction by those it has in part, and their moments."""
    problem = counted.problem
    statistics, objective = problem.statistics, problem.objective
    index_F = torch.nonzero((point.mask_N > 0) & (point.mask_N < 1)).squeeze(1)
    if len(index_F) < 2:
        return point.mask_N, target
    groups_F, costs_F = problem.budget.groups_N[index_F], problem.budget.costs_N[index_F]
    nothing_G = torch.zeros(len(problem.budget.limits), dtype=torch.float64)
    sizes_G = nothing_G.index_add(0, groups_F, costs_F.square())
    sizes_G[sizes_G == 0] = 1

    def centred(values_F: Tensor) -> Tensor:
        """No correction changes what the documents of a group take."""
        taken_G = nothing_G.index_add(0, groups_F, costs_F * values_F)
        return values_F - costs_F * (taken_G / sizes_G)[groups_F]

    def spread(values_F: Tensor) -> Tensor:
        return torch.zeros_like(point.mask_N).index_copy_(0, index_F, values_F)

    def moments_at(values_F: Tensor) -> Moments:
        own = statistics.own_moments(spread(values_F))
        return replace(own, count=0.0) if counted.base is None else own

    base = objective.relaxed_form(counted.told(target)).scaled(-1)

    def bend(values_F: Tensor) -> Tensor:
        change = objective.relaxed_form(counted.told(target.plus(moments_at(values_F)))).plus(base)
        return -counted.scores(change, index_F)

    change = base.scaled(-1).plus(point.form.scaled(-1))
    right_F = centred(counted.scores(change, index_F))
    correction_F = _solved(lambda values_F: values_F / length + centred(bend(values_F)), right_F)
    return point.mask_N + spread(correction_F), target.plus(moments_at(correction_F))


def _solved(product: Callable[[Tensor], Tensor], right_F: Tensor) -> Tensor:
    """Conjugate gradients, from zero."""
    found_F, left_F, along_F = torch.zeros_like(right_F), right_F.clone(), right_F.clone()
    size = float(left_F @ left_F)
    enough = RESIDUAL**2 * size
    for _ in range(MOST_PRODUCTS):
        if size <= enough:
            break
        bent_F = product(along_F)
        share = size / float(along_F @ bent_F)
        found_F += share * along_F
        left_F -= share * bent_F
        size, before = float(left_F @ left_F), size
        along_F = left_F + (size / before) * along_F
    return found_F


def _or_infinite(bound: float | None) -> float:
    return math.inf if bound is None else bound


def _between(left: Moments, right: Moments, share: float) -> Moments:
    return left.plus(left, -share).plus(right, share)
