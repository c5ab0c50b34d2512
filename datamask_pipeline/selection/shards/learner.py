"""The learner of moment metrics over documents of several processes. Knows no process, file or report.

The same steps as `selection.moments`: projected gradient on the relaxed mask, the better of two roundings, swaps, and the
tangent's certificate; what is a pass over a block there is one step of every process here. Columns are named, and stay
where they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from datamask_pipeline.diversity.moments import LinearForm, Moments, moments_of, squared_norms
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection.budget import TIE, Budget
from datamask_pipeline.selection.moments.choose import SAMPLE_STEPS
from datamask_pipeline.selection.moments.relaxed import LONG_STEPS, Ascent, Segment
from datamask_pipeline.selection.moments.statistics import Statistics
from datamask_pipeline.selection.moments.swaps import swap
from datamask_pipeline.selection.objective import MomentObjective, ObjectiveFunction
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.rows import MemoryRows
from datamask_pipeline.selection.shards.population import Population
from datamask_pipeline.selection.shards.view import Terms

BAND = 2048
"""Documents on each side of the threshold that a round of swaps looks at: their vectors travel."""
MOST_BANDS = 3
"""After which what is left to gain is not worth another pass over all documents."""

NARROW = 128
"""Dimensions up to which products take less time than it takes to convert rows to half precision."""

OnStep = Callable[["Climb", float, float | None], bool]


@dataclass(kw_only=True)
class Climb:
    """Where the ascent stands; its weights are column ``weights``, its last gradient column ``gradient``."""

    moments: Moments
    quality: float
    """Summed over the mask, and over what is held."""
    value: float | None = None
    step: int = 0
    step_length: float = 0.0
    moved: bool = False
    graded: bool = False
    """Whether column ``gradient`` is of these weights, in float32."""


class Learner:
    """The objective over the masks of one population.

    Args:
        population: The documents, with columns ``quality`` and ``squared``.
        function: The objective; its own `quality_N` is not read, each document's lies with the document.
        dtype: Arithmetic of gradients, where there are products enough that half precision is any faster.
    """

    def __init__(self, population: Population, function: ObjectiveFunction, dtype: str) -> None:
        self.population, self.function = population, function
        self.dtype = dtype if population.second and population.dim > NARROW else "float32"
        self.objective = MomentObjective(objective=function)
        self.best_bound = math.inf

    # -- the objective ------------------------------------------------------------------------------------

    def _of(self, *quality: float) -> MomentObjective:
        """The objective where each summed quality stands for a whole mask, as if that were one document."""
        column = torch.tensor(quality, dtype=torch.float64)
        return MomentObjective(objective=replace(self.function, quality_N=column, held_quality=0.0))

    def quality(self, column: str) -> float:
        """The summed quality of a mask and of what is held."""
        return self.population.dots((column, "quality"))[0] + self.function.held_quality

    def value(self, mask: str, moments: Moments | None = None) -> float:
        """The objective at a mask, from float32 products."""
        found = self.population.moments(mask) if moments is None else moments
        return self._of(self.quality(mask)).value(torch.ones(1, dtype=torch.bool), found)

    def start(self, mask: str) -> Climb:
        """An ascent that starts at a mask."""
        self.population.combine("weights", (1.0, mask))
        return Climb(moments=self.population.moments(mask), quality=self.quality(mask))

    def gradient(self, moments: Moments, dtype: str) -> tuple[LinearForm, float]:
        """Column ``gradient``: the derivative by each document. Returns the form, and the largest magnitude.

        Raises:
            ConfigurationError: it is not finite.
        """
        form = self.objective.relaxed_form(moments)
        low, high = self.population.gradient("gradient", form, self.function.lamb / moments.count, dtype)
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ConfigurationError(
                "the objective's gradient is not finite; a diversity metric returned NaN or infinity"
            )
        return form, max(abs(low), abs(high))

    def _held_part(self, form: LinearForm, count: float) -> float:
        if self.population.held is None:
            return 0.0
        return form.total(self.population.held) + self.function.held_quality * self.function.lamb / count

    def bound(self, form: LinearForm, moments: Moments) -> float | None:
        """The linearisation's maximum over all masks, see `RelaxedObjective.bound`, at column ``gradient``."""
        if self.population.limits.tokens or not self.objective.concave:
            return None
        inner = form.total(moments) - self._held_part(form, moments.count)
        diversity = (1 - self.function.lamb) * self.function.diversity(self.objective.relaxed_raw(moments))
        return diversity - inner + self.population.most("gradient")

    def certify(self, form: LinearForm, moments: Moments) -> float | None:
        """The smallest bound so far, that of these weights included; column ``tangent`` is where it was found."""
        bound = self.bound(form, moments)
        if bound is not None and bound < self.best_bound:
            self.best_bound = bound
            self.population.copy("tangent", "weights")
        return self.known_bound

    @property
    def known_bound(self) -> float | None:
        """The smallest bound so far, if there is any."""
        return self.best_bound if math.isfinite(self.best_bound) else None

    # -- the ascent ---------------------------------------------------------------------------------------

    def ascend(self, climb: Climb, num_steps: int, on_step: OnStep) -> Climb:
        """Climb until `on_step` says enough or the steps are used up, see `relaxed.ascend`."""
        people = self.population
        while climb.step < num_steps:
            if climb.value is None:
                climb.value = self._of(climb.quality).relaxed_value(torch.ones(1), climb.moments)
            form, largest = self.gradient(climb.moments, self.dtype)
            climb.graded = self.dtype == "float32"
            bound = self.certify(form, climb.moments) if climb.graded else self.bound(form, climb.moments)
            if on_step(climb, climb.value, bound):
                break
            people.combine("following", (1.0, "gradient"), (-self._centre(form), None))
            length = self._step_length(climb)
            if largest > 0:
                length = min(length, 1 / (TIE * largest))
            people.combine("target", (1.0, "weights"), (length, "following"))
            people.project("target", "target")
            target, quality = people.moved(climb.moments, "weights", "target"), self.quality("target")
            ends = Ascent(
                weights_N=torch.tensor([1.0, 0.0], dtype=torch.float64),
                moments=climb.moments,
                value=climb.value,
            )
            right = torch.tensor([0.0, 1.0], dtype=torch.float64)
            segment = Segment(self._of(climb.quality, quality), ends, right, target)
            rise, fall = people.dots(("gradient", "target"), ("gradient", "weights"))
            share, climb.value = segment.best_by(rise - fall, people.limits.tokens)
            people.copy("previous", "weights")
            people.copy("direction", "following")
            climb.moved, climb.step_length, climb.graded = True, length, False
            if share == 1.0:
                people.copy("weights", "target")
                climb.moments, climb.quality = target, quality
            else:
                people.combine("weights", (1 - share, "previous"), (share, "target"))
                climb.moments = climb.moments.plus(climb.moments, -share).plus(target, share)
                climb.quality = (1 - share) * climb.quality + share * quality
            climb.step += 1
            if share == 0.0:
                break
        people.drop("following", "direction", "previous", "target")
        return climb

    def _centre(self, form: LinearForm) -> float:
        """What all documents share of the gradient, see `RelaxedObjective.direction`."""
        if not self.population.limits.tokens:
            return self.population.median("gradient")
        total, count = self.population.dots(("weights", "gradient"), ("weights", None))
        if self.population.held is not None:
            count += self.population.held.count
            total += self._held_part(form, count)
        return total / count

    def _step_length(self, climb: Climb) -> float:
        """See `relaxed._step_length`."""
        people = self.population
        if climb.moved:
            moved: Terms = [(1.0, "weights"), (-1.0, "previous")]
            fallen: Terms = [(1.0, "direction"), (-1.0, "following")]
            bent, far, steep = people.dots((moved, fallen), (moved, moved), (fallen, fallen))
            if bent > 0:
                short = people.second and climb.step > LONG_STEPS and climb.step % 2 == 0
                return bent / steep if short else far / bent
            return climb.step_length * 4
        people.combine("moved", (1.0, "following"), (-people.median("following"), None))
        spread = people.median("moved", absolute=True)
        people.drop("moved")
        return 0.5 / spread if spread > 0 else 1.0

    # -- the mask -----------------------------------------------------------------------------------------

    def round(self, into: str) -> float:
        """The better of two roundings, see `rounding.round_mask`; its objective."""
        people = self.population
        people.best("largest", "weights")
        people.drawn("dependent", "weights")
        if people.limits.tokens:
            people.filled("dependent", "dependent", "weights")
        values = {name: self.value(name) for name in ("largest", "dependent")}
        name = max(values, key=values.__getitem__)
        people.copy(into, name)
        return values[name]

    def improve(self, mask: str, value: float, num_rounds: int, goal: float, graded: bool) -> int:
        """Swap documents near the threshold while that gains; how many were swapped in.

        Args:
            mask: The mask, changed in place.
            value: Its objective.
            num_rounds: Most rounds of each band.
            goal: The objective that is enough.
            graded: Whether column ``gradient`` is that near the mask.
        """
        people, swaps = self.population, 0
        moments = people.moments(mask)
        for _ in range(MOST_BANDS if num_rounds else 0):
            if value >= goal:
                break
            if not graded:
                self.gradient(moments, "float32")
            people.nearest("leaving", "gradient", mask, BAND, inside=True)
            people.nearest("entering", "gradient", mask, BAND, inside=False)
            band = people.rows("leaving", "entering", beside=mask)
            swapped, moments, reached = self._swap(band, mask, moments, num_rounds, goal)
            swaps += swapped
            if not swapped and not graded:
                break
            value, graded = reached, False
        return swaps

    def _swap(
        self,
        band: dict[str, Tensor],
        mask: str,
        moments: Moments,
        num_rounds: int,
        goal: float,
    ) -> tuple[int, Moments, float]:
        """Rounds of `swaps.swap` among a band: all other documents of the mask stand beside it."""
        people, limits = self.population, self.population.limits
        numbers, rows, selected, groups, costs, quality = (
            band[name] for name in ("numbers", "rows", "selected", "groups", "costs", "quality")
        )
        inside = moments_of(rows, selected, people.second)
        beside = moments.plus(inside, -1.0)
        taken_G = np.zeros(len(limits.limits_G), np.int64)
        np.add.at(taken_G, groups[selected].numpy(), costs[selected].numpy())
        outside_G = people.counts(mask)[1] - taken_G
        budget = Budget(
            costs_N=costs.to(torch.float64),
            groups_N=groups.to(torch.int64),
            limits=tuple((limits.limits_G - outside_G).astype(np.float64).tolist()),
            tokens=limits.tokens,
            seed=limits.seed,
        )
        function = replace(
            self.function,
            quality_N=quality,
            held_count=beside.count,
            held_quality=self.quality(mask) - float(quality[selected].sum()),
        )
        with Workers(1) as workers:
            statistics = Statistics(
                rows=MemoryRows(rows, max(len(rows), 1)),
                workers=workers,
                squared_N=squared_norms(rows),
                needs_second=people.second,
                held=beside,
            )
            objective = MomentObjective(objective=function)
            result = swap(selected, statistics, objective, budget, num_rounds, torch.float32, goal)
        people.team.later(
            "settle",
            view=people.view,
            mask=mask,
            numbers=numbers.numpy(),
            selected=result.mask_N.numpy(),
        )
        return result.num_swaps, result.moments, result.value


def warm_start(learner: Learner, sample_documents: int, columns: list[str]) -> None:
    """Column ``first``: the mask to start from, see `choose._first_mask`."""
    people, function = learner.population, learner.function
    if people.num_rows <= 2 * sample_documents or people.limits.tokens or people.limits.grouped:
        people.best("first", "quality", exact=True)
        return
    people.sample("sampled", sample_documents, "sample")
    part = people.part("sample", "sampled", columns)
    share = part.limits.num_documents / people.limits.num_documents
    inside = Learner(
        part,
        replace(function, held_count=function.held_count * share, held_quality=function.held_quality * share),
        learner.dtype,
    )
    part.best("first", "quality", exact=True)
    learnt = inside.ascend(inside.start("first"), SAMPLE_STEPS, lambda *_: False).moments
    people.team.later("forget", name="sample")
    whole = learnt.plus(learnt, (people.limits.num_documents + function.held_count) / learnt.count - 1)
    learner.gradient(whole, learner.dtype)
    people.best("first", "gradient")
