"""A bound on every mask of a mixture of one coverage metric with concave metrics of moments. Knows no search for masks.

Shape suffixes: N documents, which are the references too.

At any weights the tangent of the metrics of moments lies above them (see `moments.relaxed`), and any dual variables say
what a mask's documents cover at most (see `facility.bound`). Both are sums over a mask's documents beside a constant: the
largest sum of both together bounds the mixture, whatever weights and dual variables these are. Weights climb what moments
are worth beside what documents offer above the dual variables, one projected gradient step at a time; dual variables
follow by Polyak's steps, led by the weights. Steps on one side alone end at a kink, far above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from datamask_pipeline.diversity.base import CoverageMetric
from datamask_pipeline.diversity.moments import LinearForm, MomentMetric, Moments
from datamask_pipeline.selection.evaluation import evaluate
from datamask_pipeline.selection.facility.bound import NEAR, Entries, PolyakSteps
from datamask_pipeline.selection.facility.choose import MOST_EXACT, first_length
from datamask_pipeline.selection.facility.evaluate import coverage_of
from datamask_pipeline.selection.facility.nearest import nearest
from datamask_pipeline.selection.moments.relaxed import Ascent, RelaxedObjective, ascend, start_at
from datamask_pipeline.selection.objective import MomentObjective, Term
from datamask_pipeline.selection.policies.datamask import DataMaskConfig
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.solution import Solution

METHOD = (
    "Frank-Wolfe and Lagrangian dual: the tangent of the metrics of moments and the coverage's dual variables, maximised "
    "together over all masks"
)
LONGER = 4
"""Times the length that lists have where a mask is sought on them: dual variables go no lower than a list's end."""
FIRST_STEPS = 10
"""Of the weights, beside the first dual variables."""
FACTORS = (0.1, 0.03)
"""The first of Polyak's steps, and that of steps which begin anew at the smallest bound: whole ones leave the first dual
variables, which are good ones, far behind, and some do not come back."""
LEAST_HEIGHT = 0.05
"""Of what is left between bound and value, which a step of the dual variables supposes at least."""
MOST_STEPS, FEWEST_STEPS = 300, 15
WORK = 8e11
"""Multiplications that all steps may take, if these are not the fewest."""
OF_A_SPECTRUM = 60
"""Multiplications of the eigendecompositions of a step, in third powers of the dimensions."""


@dataclass(frozen=True, kw_only=True)
class _OfMoments(MomentObjective):
    """Remembers derivative and values at the last moments, of which each is asked twice: offers change neither."""

    last: dict[str, tuple[Moments, Any]] = field(default_factory=dict)

    def relaxed_form(self, moments: Moments) -> LinearForm:
        if (known := self.last.get("form")) is None or known[0] is not moments:
            self.last["form"] = known = moments, super().relaxed_form(moments)
        form: LinearForm = known[1]
        return form

    def relaxed_raw(self, moments: Moments) -> dict[str, float]:
        if (known := self.last.get("raw")) is None or known[0] is not moments:
            self.last["raw"] = known = moments, super().relaxed_raw(moments)
        raw: dict[str, float] = known[1]
        return raw


@dataclass(frozen=True)
class _Found:
    """Weights, dual variables and the bound there: the smallest so far."""

    ascent: Ascent
    dual_N: Tensor
    bound: float = math.inf


def covering(problem: Problem) -> Term | None:
    """The coverage term of a mixture that has a bound; none where it has none, whatever the reason."""
    return None if _why_none(problem) else _coverage(problem)[0]


def _coverage(problem: Problem) -> list[Term]:
    return [term for term in problem.objective.terms if isinstance(term.metric, CoverageMetric)]


def _why_none(problem: Problem) -> str:
    """Why there is no bound; empty where there is one."""
    terms, coverage, size = problem.objective.terms, _coverage(problem), problem.num_rows
    of_moments = [term.metric for term in terms if isinstance(term.metric, MomentMetric)]
    if len(coverage) != 1 or not of_moments or len(terms) != 1 + len(of_moments):
        return "no bound: the metrics share none"
    name = f"{coverage[0].name} beside {', '.join(metric.name for metric in of_moments)}"
    if bent := [metric.name for metric in of_moments if not metric.concave]:
        return f"no bound: {', '.join(bent)} is not concave in the relaxed mask"
    if problem.budget.tokens or problem.held is not None:
        return f"no bound: in tokens, and beside what is held, {name} has none"
    metric = coverage[0].metric
    assert isinstance(metric, CoverageMetric), "chosen by that"
    if size > MOST_EXACT or len(metric.references(size)) < size:
        return f"no bound: {name} has one of up to {MOST_EXACT:,} documents, each of them a reference"
    return ""


def bound_at(problem: Problem, moments: Moments, dual_N: Tensor, offered_N: Tensor) -> float:
    """What no mask exceeds.

    Args:
        problem: A mixture that `covering` knows a term of.
        moments: Of any weights: where the tangent is taken.
        dual_N: float64, not negative: each document's dual variable as a reference.
        offered_N: float64: what each document offers above these, by every reference.
    """
    term = covering(problem)
    assert term is not None, "asked of what has a bound"
    return _bound_of(_relaxed(problem), problem, term, moments, dual_N, offered_N)


def _bound_of(
    relaxed: RelaxedObjective,
    problem: Problem,
    term: Term,
    moments: Moments,
    dual_N: Tensor,
    offered_N: Tensor,
) -> float:
    gradient_N, form = _beside(relaxed, problem, offered_N).gradient(moments, torch.float32)
    of_moments = relaxed.bound(gradient_N, form, moments)
    assert of_moments is not None, "the metrics of moments are concave, the budget counts documents"
    return of_moments + _covered(problem, term, dual_N)


def _covered(problem: Problem, term: Term, dual_N: Tensor) -> float:
    """What the dual variables are worth beside the documents."""
    return (1 - problem.objective.lamb) * (term.scale * float(dual_N.mean()) + term.offset)


def certified(problem: Problem, solution: Solution, config: DataMaskConfig) -> Solution:
    """The solution with the smallest bound that is found; with the reason where there is none."""
    term = covering(problem)
    if term is None:
        return replace(solution, method=_why_none(problem))
    evaluation = evaluate(problem, solution)
    documents_ND, workers, value = problem.rows.everything().float(), problem.workers, evaluation.value
    every_N = torch.arange(problem.num_rows)
    length, longest = first_length(problem.num_rows, problem.budget.num_documents)
    lists = nearest(documents_ND, every_N, min(LONGER * length, longest), workers)
    selected_T = torch.nonzero(solution.mask_N).squeeze(1)
    covered = coverage_of(documents_ND, every_N, selected_T, workers, torch.float32)
    width = float((covered.best_R - covered.second_R).double().mean())
    entries = Entries(lists, slack=NEAR * width)
    scale = (1 - problem.objective.lamb) * term.scale / problem.num_rows
    dual_N = ((covered.best_R + covered.second_R) / 2).double().clamp(entries.low_R, entries.high_R)
    nothing_N = torch.zeros(problem.num_rows, dtype=torch.float64)
    relaxed = _relaxed(problem)
    found, left = (
        _Found(start_at(relaxed, solution.mask_N), dual_N),
        _num_steps(problem, lists.documents_Rk.numel()),
    )
    for factor in FACTORS:
        ascent, dual_N, steps = (
            replace(found.ascent),
            found.dual_N,
            PolyakSteps(entries, scale, value, factor),
        )
        more = FIRST_STEPS
        while left > 0:
            offered_N, above_A = entries.scores(nothing_N, scale, dual_N)
            ascent.value = None  # of other dual variables
            ascent = ascend(
                _beside(relaxed, problem, offered_N), ascent, ascent.step + more, lambda *_: False
            )
            left, more = left - 1, 1
            bound = _bound_of(relaxed, problem, term, ascent.moments, dual_N, offered_N)
            if bound < found.bound:
                found = _Found(replace(ascent), dual_N, bound)
            if not steps.help_on(found.bound) or problem.gap(found.bound, value) <= config.gap_tolerance:
                break
            # What the weights have not climbed yet is no fault of the dual variables.
            assert ascent.value is not None, "after a step"
            climbed = ascent.value + _covered(problem, term, dual_N)
            height = min(found.bound, max(climbed, value + LEAST_HEIGHT * (found.bound - value)))
            following_N = steps.after(dual_N, entries.crowd(ascent.weights_N, above_A), height)
            if following_N is None:
                break
            dual_N = following_N
    # Moments were followed through many steps: the bound is that of the weights, summed anew.
    tangent_N = found.ascent.weights_N
    offered_N, _ = entries.scores(nothing_N, scale, found.dual_N)
    bound = bound_at(problem, problem.statistics.moments(tangent_N), found.dual_N, offered_N)
    gap, step = max(0.0, problem.gap(bound, value)), solution.notes["steps"]
    problem.report({"step": step, "num_steps": step, "objective": value, "bound": bound, "gap": gap})
    return replace(
        solution,
        bound=bound,
        method=METHOD,
        tangent_N=tangent_N,
        dual_N=found.dual_N,
        evaluation=evaluation,
    )


def _relaxed(problem: Problem) -> RelaxedObjective:
    """The metrics of moments alone over relaxed masks, no quality beside them.

    Quality and diversity have a half each of twice as much: so there is room for an offer where quality has no weight.
    """
    function = problem.objective
    terms = tuple(
        replace(term, weight=2 * (1 - function.lamb) * term.weight)
        for term in function.terms
        if isinstance(term.metric, MomentMetric)
    )
    quality_N = torch.zeros_like(function.quality_N)
    return RelaxedObjective(
        statistics=problem.statistics,
        objective=_OfMoments(objective=replace(function, lamb=0.5, quality_N=quality_N, terms=terms)),
        budget=problem.budget,
        dtype=problem.dtype,
    )


def _beside(relaxed: RelaxedObjective, problem: Problem, offered_N: Tensor) -> RelaxedObjective:
    """The same with each document's quality, and what it offers."""
    quality_N = 2 * (problem.objective.lamb * problem.objective.quality_N)
    quality_N += 2 * problem.budget.num_documents * offered_N
    function = replace(relaxed.objective.objective, quality_N=quality_N)
    return replace(relaxed, objective=replace(relaxed.objective, objective=function))


def _num_steps(problem: Problem, num_entries: int) -> int:
    dim = problem.rows.dim
    rows = 4 * problem.num_rows * dim ** (2 if problem.objective.needs_second else 1)
    spectrum = OF_A_SPECTRUM * dim**3 if _relaxed(problem).objective.spectral else 0
    return min(MOST_STEPS, max(FEWEST_STEPS, int(WORK / (rows + spectrum + num_entries))))
