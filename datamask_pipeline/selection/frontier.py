"""Several selections of one block at once, along lambda or along the ratio. Knows no learner.

The block is checked once, and each learner of a metric of moments starts where its neighbour ended,
but for blocks that are learnt by bands. Along lambda the scale
is measured once, and every mask found is offered to every lambda: of a linear trade-off's best points, quality then never
falls and diversity never rises with it. Along the ratio every mask is offered to the next one, filled up: what a monotone
metric reaches alone, such as Facility at lambda 0, never falls. A policy that reads no metric keeps its own masks: by what
a metric says of them another's may be better, and is not what the policy chooses.

Shape suffixes: N documents, n of those left by pruning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.hardware import present_device
from datamask_pipeline.selection.api import (
    check_settings,
    normalised_problem,
    raw_problem,
    require_promises,
    result_of,
)
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.evaluation import evaluate
from datamask_pipeline.selection.groups import names_of, tell_of_unmet
from datamask_pipeline.selection.inputs import array_of_tensor, budget_of, checked_quality, checked_rows
from datamask_pipeline.selection.metrics import Diversity, require_range
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.progress import Curve
from datamask_pipeline.selection.pruning import Pruned, prune
from datamask_pipeline.selection.result import SelectionResult
from datamask_pipeline.selection.solution import Solution
from datamask_pipeline.selection.timings import Timings

NOT_TAKEN = (
    "target", "avoid", "given", "max_copies", "ids", "known_groups", "checkpoint_dir", "progress",
)  # fmt: skip
"""Arguments of `select_documents` that no frontier has."""


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """Selections of one block, in the order of what was varied.

    Attributes:
        along: ``lamb`` or ``ratio``.
        at: Its values, rising.
    """

    along: str
    at: tuple[float, ...]
    results: tuple[SelectionResult, ...]

    def table(self) -> pa.Table:
        """A row for each: what was varied, documents, objective, quality, diversity, bound and gap."""
        rows = [
            {
                self.along: value,
                "documents": int(result.mask.sum()),
                "objective": result.objective.value,
                "quality": result.objective.quality,
                "diversity": result.objective.diversity,
                "bound": result.certificate.bound,
                "gap": result.certificate.gap,
            }
            for value, result in zip(self.at, self.results, strict=True)
        ]
        return pa.Table.from_pylist(rows)


@dataclass(kw_only=True)
class _Point:
    """One problem with what its learner found."""

    problem: Problem
    pruned: Pruned
    curve: Curve
    timings: Timings
    solution: Solution


def frontier(
    embeddings: Any,
    quality: Any,
    *,
    lambs: Sequence[float] | None = None,
    ratios: Sequence[float] | None = None,
    diversity: Diversity | None = None,
    token_counts: Any = None,
    groups: Sequence[Any] | None = None,
    **settings: Any,
) -> Frontier:
    """What can be had of quality and diversity, or at which budget.

    A point is as good as its certificate says. It is not bit for bit what `select_documents` finds there, as learners begin
    where their neighbours ended, and may lie slightly below or above it.

    Args:
        embeddings: As of `select_documents`.
        quality: As of `select_documents`.
        lambs: Weights of quality, each once; or
        ratios: Shares of the block.
        diversity: As of `select_documents`.
        token_counts: As of `select_documents`.
        groups: As of `select_documents`.
        settings: The others' settings.

    Raises:
        ConfigurationError: not one of the two, no numbers, a value twice, an argument of `NOT_TAKEN`, or what
            `select_documents` refuses.
        InputError: what `select_documents` refuses.
    """
    along, values = _varied(lambs, ratios, settings)
    config, metrics, policy = check_settings(diversity=diversity, **{**settings, along: values[0]})
    configs = [check_settings(diversity=diversity, **{**settings, along: value})[0] for value in values]
    timings = Timings()
    with Workers(config.num_workers, present_device(config.device)) as workers, torch.inference_mode():
        with timings.phase("checks"):
            checked = checked_rows(embeddings, config, workers)
            scores = checked_quality(quality, checked.rows.num_rows)
            token_counts = array_of_tensor(token_counts)
        points: list[_Point] = []
        frozen: dict[str, tuple[float, float]] | None = None
        for own in configs:
            watch, curve = Timings(), Curve(None)
            budget = budget_of(own, checked.rows.num_rows, token_counts, groups)
            if not points and own.quotas is not None and groups is not None:
                tell_of_unmet(own.quotas, {*names_of(groups)})
            require_range(metrics, own, budget.num_documents)
            pruned = (
                points[0].pruned if points and along == "lamb" else prune(checked.rows, scores, budget, own)
            )
            if frozen:
                measured = own.model_copy(update={"normalisation_constants": frozen})
            else:
                measured = _weighing_all(own) if along == "lamb" and len(values) > 1 else own
            problem = raw_problem(measured, metrics, pruned, workers, curve)
            policy.check(problem)
            with watch.phase("normalisation"):
                problem = normalised_problem(problem, pruned, checked, None, curve, lamb=own.lamb)
            problem = replace(problem, config=own)
            if along == "lamb" and own.normalisation == "affine":
                frozen = problem.constants
                problem = replace(
                    problem, random_value=0.0 if own.normalisation_constants is None else problem.random_value
                )
            if points:
                problem = replace(problem, start_N=_start(points[-1], problem))
            with watch.phase("learning"):
                solution = policy.choose(problem)
            require_promises(solution, problem, budget, pruned)
            points.append(
                _Point(problem=problem, pruned=pruned, curve=curve, timings=watch, solution=solution)
            )
        best: Iterator[Solution] = (point.solution for point in points)
        if "diversity" not in policy.unread:
            best = _best_along_lambda(points) if along == "lamb" else _grown(points)
        results = [
            result_of(
                point.problem,
                solution,
                evaluate(point.problem, solution),
                point.pruned,
                checked,
                point.curve,
                point.timings,
                token_counts,
                None,
            )
            for point, solution in zip(points, best, strict=True)
        ]
    return Frontier(along=along, at=tuple(values), results=tuple(results))


def _varied(
    lambs: Sequence[float] | None, ratios: Sequence[float] | None, settings: dict[str, Any]
) -> tuple[str, list[float]]:
    given = {name: values for name, values in (("lamb", lambs), ("ratio", ratios)) if values is not None}
    if len(given) != 1:
        raise ConfigurationError("a frontier is along `lambs` or along `ratios`: give one of them")
    ((along, values),) = given.items()
    for name in NOT_TAKEN:
        if name in settings:
            raise ConfigurationError(
                f"a frontier takes no `{name}`; call select_documents at each {along} for that"
            )
    try:
        found = [] if isinstance(values, str) else sorted(float(value) for value in values)
    except (TypeError, ValueError):
        found = []
    if not found or len({*found}) < len(found):
        raise ConfigurationError(
            f"{along}s of a frontier must be different numbers, at least one in a list, not {values!r:.120}"
        )
    if along in settings or "config" in settings:
        raise ConfigurationError(
            f"{along} is varied by `{along}s`, and the other settings are given one by one"
        )
    return along, found


def _weighing_all(config: SelectionConfig) -> SelectionConfig:
    """The settings at a lambda between 0 and 1, where every term needs its range, as each has a weight at one of two."""
    return config.model_copy(update={"lamb": 0.5})


def _start(before: _Point, problem: Problem) -> Tensor | None:
    """The neighbour's relaxed mask, brought to this budget; none where the neighbour had none or other documents."""
    weights_N = before.solution.probabilities_N
    if weights_N is None or len(weights_N) != problem.num_rows or problem.budget.tokens:
        return None
    scale = sum(problem.budget.limits) / sum(before.problem.budget.limits)
    return problem.budget.project(weights_N.to(torch.float64) * scale)


def _best_along_lambda(points: list[_Point]) -> Iterator[Solution]:
    """Of all masks that were found, the best at each lambda; the bound is each lambda's own."""
    found = [evaluate(point.problem, point.solution) for point in points]
    for place, own in enumerate(points):
        objective = own.problem.objective
        values = [objective.combine(one.quality, one.diversity) for one in found]
        best = max(range(len(points)), key=values.__getitem__)
        yield own.solution if values[best] == values[place] else _with_mask_of(own, points[best])


def _grown(points: list[_Point]) -> Iterator[Solution]:
    """Each mask, or the one before filled up to the budget where that is better."""
    before: Tensor | None = None
    for point in points:
        best = point.solution
        if before is not None and len(before) == point.problem.num_rows:
            ranks_n = torch.empty(len(before), dtype=torch.float64)
            ranks_n[torch.argsort(best.scores_N, stable=True)] = torch.arange(
                len(before), dtype=torch.float64
            )
            grown = replace(
                best,
                mask_N=point.problem.budget.fill(before * len(before) + ranks_n),
                raw={},
                diversity_N=None,
                evaluation=None,
            )
            if evaluate(point.problem, grown).value > evaluate(point.problem, best).value:
                best = grown
        before = best.mask_N
        yield best


def _with_mask_of(own: _Point, other: _Point) -> Solution:
    notes = own.solution.notes | {"mask_of_lamb": other.problem.config.lamb}
    mask = other.solution
    return replace(
        own.solution,
        mask_N=mask.mask_N,
        raw=mask.raw,
        diversity_N=mask.diversity_N,
        evaluation=None,
        notes=notes,
    )
