"""The mask over documents of several processes: by moments, or of a coverage metric by regions. Knows no report."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datamask_pipeline.diversity.moments import Moments
from datamask_pipeline.selection.budget import TIE
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.moments.choose import CHEAPER
from datamask_pipeline.selection.moments.swaps import GOAL_SHARE
from datamask_pipeline.selection.objective import ObjectiveFunction
from datamask_pipeline.selection.policies.datamask import DataMaskConfig
from datamask_pipeline.selection.progress import Curve
from datamask_pipeline.selection.shards.coverage import choose_by_regions
from datamask_pipeline.selection.shards.learner import MOST_BANDS, Climb, Learner, warm_start
from datamask_pipeline.selection.shards.population import Population
from datamask_pipeline.selection.shards.source import Shard, total_rows
from datamask_pipeline.selection.solution import TANGENT, told_bound


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a learner leaves behind, beside column ``mask``.

    Attributes:
        raw: Each metric's value.
        moments: Of the mask and of what is held; none where the metric is none of moments.
        weights: The column of probabilities.
        scores: That by which documents are ordered that are in or out for certain.
        certified_at: The column that the bound rests on, and its file.
        learner: For the record.
    """

    raw: dict[str, float]
    moments: Moments | None
    bound: float | None
    method: str
    weights: str
    scores: str
    certified_at: str
    learner: dict[str, Any]


def by_regions(
    people: Population,
    function: ObjectiveFunction,
    config: SelectionConfig,
    shards: Sequence[Shard],
    folder: Path,
    random_value: float,
    curve: Curve,
) -> Ended:
    """Column ``mask`` of a coverage metric, and columns ``diversity_marginal`` and ``dual``."""
    num_rows = total_rows(shards)
    regions = folder / "regions"
    shutil.rmtree(regions, ignore_errors=True)
    regions.mkdir(parents=True)
    try:
        found = choose_by_regions(people, function, options_of(config), shards, regions, num_rows)
    finally:
        shutil.rmtree(regions, ignore_errors=True)
    (term,) = function.terms
    quality = people.dots(("mask", "quality"))[0] / int(people.counts("mask")[0].sum())
    value = function.combine(quality, function.diversity({term.name: found.raw}))
    record: dict[str, Any] = {"step": 1, "num_steps": 1, "objective": value}
    bound, _ = told_bound(found.bound, value, random_value, found.method)
    if bound is not None:
        record |= {"bound": bound, "gap": max(0.0, gap_of(people, random_value, bound, value))}
    curve(record)
    return Ended(
        raw={term.name: found.raw},
        moments=None,
        bound=found.bound,
        method=found.method,
        weights="mask",
        scores="total",
        certified_at="dual",
        learner={"over": "shards", **found.notes},
    )


def gap_of(people: Population, random_value: float, bound: float, value: float) -> float:
    """See `Problem.gap`."""
    if people.limits.takes_everything:
        return 0.0
    distance = bound - random_value
    return (bound - value) / distance if distance > TIE * max(abs(bound), abs(random_value)) else 0.0


class _Steps:
    """Who says when the ascent is near enough.

    Attributes:
        strict: Whether half-precision scores only suggest that.
        num_steps: Most steps: more in tokens, where how many documents are best is found slowly, if a step costs little.
    """

    def __init__(
        self, learner: Learner, config: SelectionConfig, random_value: float, curve: Curve, strict: bool
    ) -> None:
        self.learner, self.config, self.random_value, self.curve = learner, config, random_value, curve
        self.options, self.strict = options_of(config), strict
        people = learner.population
        self.num_steps = self.options.num_steps * (
            CHEAPER if people.limits.tokens and not people.second else 1
        )

    def gap(self, bound: float, value: float) -> float:
        """See `gap_of`."""
        return gap_of(self.learner.population, self.random_value, bound, value)

    def near(self, bound: float | None, value: float) -> bool:
        """Whether nothing more is asked for."""
        return bound is not None and self.gap(bound, value) <= self.options.gap_tolerance

    def goal(self) -> float:
        """The objective that is enough, where a bound is known."""
        bound = self.learner.known_bound
        if bound is None:
            return math.inf
        return bound - self.options.gap_tolerance * GOAL_SHARE * max(0.0, bound - self.random_value)

    def __call__(self, climb: Climb, value: float, bound: float | None) -> bool:
        enough = self.near(bound, value)
        if enough and self.strict and not climb.graded:
            bound = _graded(self.learner, climb)
            enough = self.near(bound, value)
        record: dict[str, Any] = {
            "step": climb.step,
            "num_steps": self.num_steps,
            "objective": value,
        }
        if bound is not None:
            record |= {"bound": bound, "gap": max(0.0, self.gap(bound, value))}
        self.curve(record)
        return enough


def by_moments(learner: Learner, config: SelectionConfig, random_value: float, curve: Curve) -> Ended:
    """Column ``mask``: the best mask found; columns ``weights`` and ``final`` are of the relaxed one."""
    steps = _Steps(learner, config, random_value, curve, strict=not learner.proves_by_marginals)
    people, options = learner.population, steps.options
    warm_start(learner, options.sample_documents, steps.gap)
    climb, swaps, by_quality = learner.start("first"), 0, False
    if not steps.strict:
        climb, swaps = _climbed(learner, climb, steps)
        moments = people.moments("mask")
        learner.marginals("mask", moments)
        value = learner.value("mask", moments)
        people.copy("final", "gradient")
        # What half precision took for near enough may not be: then the ascent goes on, and looks twice.
        steps.strict = not steps.near(learner.prove(climb, "mask", moments), value)
        steps.strict &= climb.step < steps.num_steps
        if steps.strict:
            people.copy("earlier", "mask")
    if steps.strict:
        earlier = value if learner.proves_by_marginals else -math.inf
        climb, more = _climbed(learner, climb, steps)
        swaps += more
        if learner.value("mask") < earlier:
            people.copy("mask", "earlier")
        by_quality = people.limits.tokens and _filled(learner)
        if people.limits.tokens:
            learner.exchange("mask", config, options)
        moments = people.moments("mask")
        learner.marginals("mask", moments)
    bound = learner.known_bound
    told: dict[str, Any] = {
        "over": "shards",
        "steps": climb.step,
        "swaps": swaps,
        "fractional": int(people.tally("weights")[0, 1]),
        "converged": climb.step < steps.num_steps,
    }
    return Ended(
        raw=learner.objective.raw(moments),
        moments=moments,
        bound=bound,
        method=_argument(learner, bound),
        weights="weights",
        scores="final",
        certified_at="tangent",
        learner=told | ({"best_by_quality": True} if by_quality else {}),
    )


def _climbed(learner: Learner, climb: Climb, steps: _Steps) -> tuple[Climb, int]:
    """Column ``mask``: the relaxed mask climbed on, rounded and swapped; how many were swapped in."""
    people = learner.population
    climb = learner.ascend(climb, steps.num_steps, steps)
    value, moments = learner.round("rounded", climb)
    if steps.strict:
        if not climb.graded:
            _graded(learner, climb)
        people.copy("final", "gradient")
    people.copy("mask", "rounded")
    rounds, bands = steps.options.num_swap_rounds, MOST_BANDS if steps.strict else 1
    swaps = learner.improve("mask", value, moments, rounds, steps.goal(), bands)
    if not people.limits.tokens:
        learner.exchange("mask", steps.config, steps.options)
    return climb, swaps


def _filled(learner: Learner) -> bool:
    """Fill up column ``mask`` of a budget in tokens; whether the best by quality alone is better, and taken instead."""
    people = learner.population
    people.filled("mask", "mask", "weights")
    people.best("plain", "quality", exact=True)
    values = {name: learner.value(name) for name in ("mask", "rounded", "plain")}
    best = max(values, key=values.__getitem__)
    people.copy("mask", best)
    return best == "plain"


def options_of(config: SelectionConfig) -> DataMaskConfig:
    """The policy's own settings."""
    own = {name: getattr(config, name) for name in DataMaskConfig.model_fields if hasattr(config, name)}
    return DataMaskConfig.model_validate(own)


def _graded(learner: Learner, climb: Climb) -> float | None:
    """Column ``gradient`` in float32 at the weights, and the bound there or a better one."""
    form, _ = learner.gradient(climb.moments, "float32")
    climb.graded = True
    return learner.certify(form, climb.moments)


def _argument(learner: Learner, bound: float | None) -> str:
    if bound is not None:
        return TANGENT
    if learner.population.limits.tokens:
        return "no bound: over shards none is computed where the budget is in tokens"
    names = [term.name for term, metric in learner.function.moment_terms or () if not metric.concave]
    return f"no bound: {', '.join(names)} is not concave in the relaxed mask"
