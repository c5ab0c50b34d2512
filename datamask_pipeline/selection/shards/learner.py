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
from datamask_pipeline.selection.checkpoint import Checkpoint
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.marginal_swaps import exchanged_in_tokens
from datamask_pipeline.selection.moments.choose import learnt_on
from datamask_pipeline.selection.moments.exchanges import Exchanges
from datamask_pipeline.selection.moments.relaxed import LONG_STEPS, Ascent, RelaxedObjective, Segment
from datamask_pipeline.selection.moments.rounding import DRAWS
from datamask_pipeline.selection.moments.statistics import Statistics
from datamask_pipeline.selection.moments.swaps import swap
from datamask_pipeline.selection.moments.values import value_of
from datamask_pipeline.selection.objective import MomentObjective, ObjectiveFunction
from datamask_pipeline.selection.parallel import Workers
from datamask_pipeline.selection.policies.datamask import DataMaskConfig
from datamask_pipeline.selection.problem import Problem
from datamask_pipeline.selection.progress import Curve
from datamask_pipeline.selection.rows import MemoryRows
from datamask_pipeline.selection.shards.population import Population, plain_moments
from datamask_pipeline.selection.shards.view import Terms
from datamask_pipeline.selection.solution import Solution

BAND = 2048
"""Documents on each side of the threshold that a round of swaps looks at: their vectors travel."""
EXCHANGED = 1024
"""Of so many chosen documents at most, each is exchanged for those nearest the threshold."""
MOST_BANDS = 3
"""After which what is left to gain is not worth another pass over all documents."""

NARROW = 128
"""Dimensions up to which products take less time than it takes to convert rows to half precision."""

OnStep = Callable[["Climb", float, float | None], bool]
Gap = Callable[[float, float], float]
"""Of a bound and a value."""


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
        chunk_rows: Vectors whose products are made at a time.
    """

    def __init__(
        self, population: Population, function: ObjectiveFunction, dtype: str, chunk_rows: int
    ) -> None:
        self.population, self.function, self.chunk_rows = population, function, chunk_rows
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

    @property
    def proves_by_marginals(self) -> bool:
        """Whether the marginals of the mask, which are asked for anyway, say what a pass for the bound would."""
        objective, limits = self.objective, self.population.limits
        return (
            self.dtype != "float32"
            and objective.concave
            and objective.quadratic
            and not objective.levels(limits.num_documents, self.population.dim)
            and not limits.tokens
            and not limits.grouped
            and not limits.takes_everything
        )

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
        return self._bound_of(self.population.most("gradient"), form, moments)

    def _bound_of(self, most: float, form: LinearForm, moments: Moments) -> float:
        """The same from the largest sum of the gradient over any mask."""
        inner = form.total(moments) - self._held_part(form, moments.count)
        diversity = (1 - self.function.lamb) * self.function.diversity(self.objective.relaxed_raw(moments))
        return diversity - inner + most

    def certify(self, form: LinearForm, moments: Moments) -> float | None:
        """The smallest bound so far, that of these weights included; column ``tangent`` is where it was found."""
        return self._offered(self.bound(form, moments))

    def _offered(self, bound: float | None) -> float | None:
        if bound is not None and bound < self.best_bound:
            self.best_bound = bound
            self.population.copy("tangent", "weights")
        return self.known_bound

    def marginals(self, mask: str, moments: Moments) -> None:
        """Column ``diversity_marginal`` of a mask with these moments; where they prove, ``gradient`` too, in float32."""
        people, lamb = self.population, self.function.lamb
        proves = self.proves_by_marginals
        people.team.later(
            "marginals",
            view=people.view,
            into="diversity_marginal",
            mask=mask,
            moments=plain_moments(moments),
            factors={term.name: term.scale * (1 - lamb) for term in self.function.terms},
            own="own" if proves else None,
        )
        if proves:
            # A document's marginal lies beside the derivative by its product with itself, in or out.
            people.call("combine_product", into="twice", left=mask, right="own")
            people.combine(
                "gradient",
                (1.0, "diversity_marginal"),
                (lamb / moments.count, "quality"),
                (1.0, "own"),
                (-2.0, "twice"),
            )
            people.drop("own", "twice")

    def prove(self, climb: Climb, mask: str, moments: Moments) -> float | None:
        """The smallest bound so far, that of the relaxed mask's tangent included, see `band.bound_at`.

        Args:
            climb: Where the tangent is taken.
            mask: A mask near it, at which column ``gradient`` is the derivative.
            moments: Its moments.
        """
        people, limits = self.population, self.population.limits
        form = self.objective.relaxed_form(climb.moments)
        change = form.plus(self.objective.relaxed_form(moments).scaled(-1))
        squared = max(part["high"] for part in people.team.parts("range", name="squared"))
        room, count = 2 * change.largest(float(squared)), int(limits.limits_G[0])
        threshold = float(people.kth("gradient", [count])[0])
        people.call(
            "combine_between",
            into="sure",
            name="gradient",
            low=math.nextafter(threshold + room, math.inf),
            high=math.inf,
        )
        people.call(
            "combine_between", into="open", name="gradient", low=threshold - room, high=threshold + room
        )
        sure = people.moved(moments, mask, "sure")
        if people.held is not None:
            sure = sure.plus(people.held, -1.0)
        part = people.part("open", "open", ["squared", "quality", "gradient"])
        left = count - int(people.counts("sure")[0].sum())
        part = part.with_limits(replace(part.limits, limits_G=np.array([left])))
        part.gradient("change", change, 0.0, "float32")
        part.combine("gradient", (1.0, "gradient"), (1.0, "change"))
        most = people.dots(("sure", "gradient"))[0] + change.total(sure) + part.most("gradient")
        people.team.later("forget", name="open")
        people.drop("sure", "open")
        return self._offered(self._bound_of(most, form, climb.moments))

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
            people.combine("following", (1.0, "gradient"), (-self._centre(form, climb.moments), None))
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
        climb.moved = False  # whoever goes on from here finds a first length anew
        return climb

    def _centre(self, form: LinearForm, moments: Moments) -> float:
        """What all documents share of the gradient, see `RelaxedObjective.direction`."""
        if not self.population.limits.tokens:
            return self.population.median("gradient")
        total, count = self.population.dots(("weights", "gradient"), ("weights", None))
        if self.population.held is not None:
            count += self.population.held.count
            total += self._held_part(form, count)
        return total / count - self.objective.growth(moments)

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

    def round(self, into: str, climb: Climb) -> tuple[float, Moments]:
        """The best of a few roundings, see `rounding.round_mask`; its objective and moments."""
        people, tokens = self.population, self.population.limits.tokens
        people.best("tried", "weights")
        best, moments = -math.inf, climb.moments
        for turn in range(1 + (DRAWS if tokens and self.objective.quadratic else 1)):
            if turn:
                people.drawn("tried", "weights", turn - 1)
                if tokens:
                    people.filled("tried", "tried", "weights")
            found = people.moved(climb.moments, "weights", "tried")
            value = self.value("tried", found)
            if value > best:
                best, moments = value, found
                people.copy(into, "tried")
        people.drop("tried")
        return best, moments

    def improve(
        self, mask: str, value: float, moments: Moments, num_rounds: int, goal: float, num_bands: int
    ) -> int:
        """Swap documents near the threshold while that gains; how many were swapped in.

        Args:
            mask: The mask, changed in place; column ``gradient`` is near it.
            value: Its objective.
            moments: Its moments.
            num_rounds: Most rounds of each band.
            goal: The objective that is enough.
            num_bands: Most bands; from the second on all documents are read for each.
        """
        people, swaps = self.population, 0
        for band in range(num_bands if num_rounds else 0):
            if value >= goal:
                break
            if band:
                self.gradient(moments, "float32")
            people.nearest("leaving", "gradient", mask, BAND, inside=True)
            people.nearest("entering", "gradient", mask, BAND, inside=False)
            rows = people.rows("leaving", "entering", beside=mask)
            swapped, moments, value = self._swap(rows, mask, moments, num_rounds, goal)
            swaps += swapped
            if band and not swapped:
                break
        return swaps

    def exchange(self, mask: str, config: SelectionConfig, options: DataMaskConfig) -> None:
        """Exchange documents near the threshold one by one, of few chosen, while that gains; column ``gradient`` stays.

        Those of greedy and of the best quality among them are exchanged too, see `Exchanges.starts`; the best is taken.

        Args:
            mask: The mask, changed in place; of a budget in tokens a full one.
            config: The selection's settings.
            options: The learner's.
        """
        people = self.population
        if int(people.counts(mask)[0].sum()) > EXCHANGED or not options.num_swap_rounds:
            return
        moments = people.moments(mask)
        people.copy("kept", "gradient")
        self.gradient(moments, "float32")
        people.nearest("leaving", "gradient", mask, EXCHANGED, inside=True)
        people.nearest("entering", "gradient", mask, BAND, inside=False)
        band = people.rows("leaving", "entering", beside=mask)
        with Workers(1) as workers:
            statistics, objective, budget = self._among(band, mask, moments, workers)
            found = [band["selected"]]
            if budget.tokens:
                found.append(_exchanged_in_tokens(statistics, objective, budget, found[0], config, options))
            elif (exchanges := Exchanges.of(statistics, objective, budget)) is not None:
                found += [exchanges.improved(start_n) for start_n in (found[0], *exchanges.starts())]
            best_n = max(found, key=lambda mask_n: value_of(objective, statistics, mask_n))
        if best_n is not found[0]:
            self._settle(band, mask, best_n)
        people.copy("gradient", "kept")

    def _swap(
        self,
        band: dict[str, Tensor],
        mask: str,
        moments: Moments,
        num_rounds: int,
        goal: float,
    ) -> tuple[int, Moments, float]:
        """Rounds of `swaps.swap` among a band."""
        with Workers(1) as workers:
            statistics, objective, budget = self._among(band, mask, moments, workers)
            result = swap(band["selected"], statistics, objective, budget, num_rounds, torch.float32, goal)
        self._settle(band, mask, result.mask_N)
        return result.num_swaps, result.moments, result.value

    def _among(
        self, band: dict[str, Tensor], mask: str, moments: Moments, workers: Workers
    ) -> tuple[Statistics, MomentObjective, Budget]:
        """The problem among a band: all other documents of the mask stand beside it."""
        people, limits = self.population, self.population.limits
        rows, selected, groups, costs, quality = (
            band[name] for name in ("rows", "selected", "groups", "costs", "quality")
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
        statistics = Statistics(
            rows=MemoryRows(rows, max(len(rows), 1)),
            workers=workers,
            squared_N=squared_norms(rows),
            needs_second=people.second,
            held=beside,
        )
        return statistics, MomentObjective(objective=function), budget

    def _settle(self, band: dict[str, Tensor], mask: str, selected_n: Tensor) -> None:
        """Put the documents of a band in or out of the mask."""
        self.population.team.later(
            "settle",
            view=self.population.view,
            mask=mask,
            numbers=band["numbers"].numpy(),
            selected=selected_n.numpy(),
        )


def _exchanged_in_tokens(
    statistics: Statistics,
    objective: MomentObjective,
    budget: Budget,
    mask_n: Tensor,
    config: SelectionConfig,
    options: DataMaskConfig,
) -> Tensor:
    """The mask after exchanges of a document for another and what then fits."""
    problem = Problem(
        config=config,
        rows=statistics.rows,
        squared_N=statistics.squared_N,
        objective=objective.objective,
        budget=budget,
        workers=statistics.workers,
        constants={},
        random_value=0.0,
        report=lambda record: None,
        checkpoint=Checkpoint(None, "", 0.0, Curve(None)),
        held=statistics.held,
    )
    solution = Solution(mask_N=mask_n, scores_N=mask_n.to(torch.float64))
    return exchanged_in_tokens(problem, solution, options).mask_N


def warm_start(learner: Learner, sample_documents: int, gap: Gap) -> None:
    """Column ``first``: the mask to start from, see `choose._first_mask`. The vectors of the sample travel."""
    people, function = learner.population, learner.function
    if people.num_rows <= 2 * sample_documents or people.limits.tokens or people.limits.grouped:
        people.best("first", "quality", exact=True)
        return
    people.sample("sampled", sample_documents, "sample")
    sample = people.rows("sampled", beside="sampled")
    limit = max(2, round(people.limits.num_documents * len(sample["rows"]) / people.num_rows))
    share = limit / people.limits.num_documents
    with Workers(1) as workers:
        statistics = Statistics(
            rows=MemoryRows(sample["rows"], learner.chunk_rows),
            workers=workers,
            squared_N=squared_norms(sample["rows"]),
            needs_second=people.second,
            held=None if people.held is None else people.held.plus(people.held, share - 1),
        )
        budget = Budget(
            costs_N=torch.ones(len(sample["rows"]), dtype=torch.float64),
            groups_N=torch.zeros(len(sample["rows"]), dtype=torch.int64),
            limits=(float(limit),),
            tokens=False,
            seed=people.limits.seed,
        )
        of_sample = replace(
            function,
            quality_N=sample["quality"],
            held_count=function.held_count * share,
            held_in_part=people.held is not None,
            held_quality=function.held_quality * share,
        )
        relaxed = RelaxedObjective(
            statistics=statistics,
            objective=MomentObjective(objective=of_sample),
            budget=budget,
            dtype=getattr(torch, learner.dtype),
        )
        learnt = learnt_on(relaxed, gap, people.limits.num_documents + function.held_count)
    learner.gradient(learnt, learner.dtype)
    people.best("first", "gradient")
