"""One selection over documents of several processes: shards in, files of columns and a certificate out.

Knows no transport beyond its name. Shape suffixes: N documents, G groups.
"""

from __future__ import annotations

import logging
import math
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from datamask_pipeline.diversity.base import CoverageMetric, DiversityMetric
from datamask_pipeline.diversity.moments import MomentMetric, Moments
from datamask_pipeline.errors import ConfigurationError, InputError, InternalError, LostMemberError
from datamask_pipeline.hardware import num_cores, torch_threads
from datamask_pipeline.selection.api import check_settings
from datamask_pipeline.selection.budget import TIE, no_two_fit, shared_out, unmet_quota
from datamask_pipeline.selection.config import SelectionConfig, require_beside
from datamask_pipeline.selection.given import Given, require_fitting, require_given
from datamask_pipeline.selection.groups import nearest, tell_of_unmet
from datamask_pipeline.selection.metrics import made_with, require_range
from datamask_pipeline.selection.moments.swaps import GOAL_SHARE
from datamask_pipeline.selection.normalisation import held_quality
from datamask_pipeline.selection.objective import ObjectiveFunction, Term
from datamask_pipeline.selection.policies.datamask import DataMaskConfig, DataMaskPolicy
from datamask_pipeline.selection.progress import Curve, Progress
from datamask_pipeline.selection.ratio import documents_of
from datamask_pipeline.selection.reasons import BY_MARGINALS, TOO_LONG
from datamask_pipeline.selection.result import Certificate, Marginals, Objective, SelectionResult
from datamask_pipeline.selection.shards.carriers import Engine, members_of, team_of
from datamask_pipeline.selection.shards.coverage import choose_by_regions
from datamask_pipeline.selection.shards.learner import MOST_BANDS, Climb, Learner, warm_start
from datamask_pipeline.selection.shards.member import WHOLE, digest_of
from datamask_pipeline.selection.shards.population import Limits, Population
from datamask_pipeline.selection.shards.scale import NOTHING, constants_of, random_mean, random_means
from datamask_pipeline.selection.shards.source import Shard, dealt, numbered, total_rows
from datamask_pipeline.selection.shards.team import Team, Together
from datamask_pipeline.selection.timings import Timings

logger = logging.getLogger(__name__)

TEAMS = 3
"""So many sets of processes are begun at most, of which all but the last lost one."""
REASONS = (
    BY_MARGINALS.out,
    BY_MARGINALS.in_all_the_same,
    BY_MARGINALS.out_all_the_same,
    BY_MARGINALS.into,
    TOO_LONG,
)
NOT_OFFERED = {
    "max_copies": "every document is taken once; use select_documents",
    "target": "give likeness as a score of its own among each shard's `quality`, or use select_documents",
    "avoid": "give likeness as a score of its own among each shard's `quality`, or use select_documents",
    "ids": "a document is known by its number",
    "token_counts": "give each shard's file of them to `Shard`",
    "groups": "give each shard's file of them to `Shard`",
    "known_groups": "a quota that no document of any shard meets is told once",
    "near_copies": "leave them out before, by NearCopyIndex or stage `copies`",
    "checkpoint_dir": "a killed selection begins again when it is run again, one that lost a process by itself",
}
"""What `select_documents` and its surroundings take, and what to do instead."""
COLUMNS = {
    "mask": "|b1",
    "probability": "<f8",
    "logit": "<f8",
    "quality_marginal": "<f8",
    "diversity_marginal": "<f8",
    "reason": "|u1",
}


@dataclass(frozen=True, kw_only=True)
class ShardedSelection:
    """One selection over all shards; its columns lie in files, each value at its document's number.

    Attributes:
        folder: Holds ``mask.npy``, ``probability.npy``, ``logit.npy``, ``quality_marginal.npy``, ``diversity_marginal.npy``
            and ``reason.npy``, numbers of `REASONS`; and if there is a bound what it rests on, ``tangent.npy``, a relaxed
            mask, or ``dual.npy``, each document's dual variable. Log-odds beyond certainty are ordered by the gradient, or
            of Facility by the marginals, as those of `result.log_odds` by its rank.
    """

    folder: Path
    threshold: float
    curve: pa.Table
    objective: Objective
    certificate: Certificate
    normalisation: dict[str, tuple[float, float]]
    timings: dict[str, float]
    held: Given | None
    record: dict[str, Any]

    def column(self, name: str) -> NDArray[Any]:
        """A column, mapped."""
        mapped: NDArray[Any] = np.load(self.folder / f"{name}.npy", mmap_mode="r")
        return mapped

    def in_memory(self) -> SelectionResult:
        """The same with every column read."""
        columns = {name: np.array(self.column(name)) for name in COLUMNS}
        rest = "dual" if self.held is None else "tangent"
        certified_at = {rest: np.array(self.column(rest))} if self.certificate.bound is not None else {}
        return SelectionResult(
            mask=columns["mask"],
            counts=columns["mask"].astype(np.int64),
            logits=columns["logit"],
            probabilities=columns["probability"],
            marginals=Marginals(
                quality_N=columns["quality_marginal"], diversity_N=columns["diversity_marginal"]
            ),
            threshold=self.threshold,
            reasons=np.array(REASONS, dtype=object)[columns["reason"]],
            curve=self.curve,
            objective=self.objective,
            certificate=self.certificate,
            certified_at=certified_at,
            normalisation=self.normalisation,
            timings=self.timings,
            held=self.held,
            record=self.record,
        )


def select_over_shards(
    shards: Sequence[Shard],
    folder: Path | str,
    *,
    config: SelectionConfig | None = None,
    workers: int = 1,
    engine: Engine = "processes",
    address: str | None = None,
    given: Given | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> ShardedSelection:
    """Choose documents of all shards by one objective; their rows stay with the processes that read them.

    The mask is the same, bit for bit on one kind of processor, from any number of processes, for shards cut and listed
    in any way: a document is known by its number.

    Args:
        shards: Where the documents lie.
        folder: Where the columns are written; every process must reach it and the shards.
        config: All settings at once, instead of `settings`; policy ``datamask``, metrics of moments or Facility alone, no
            pruning.
        workers: Processes, each with an equal share of the documents; of ``ranks`` all there are.
        engine: ``processes`` of this machine; ``ray`` actors; ``ranks`` of a job of ``torch.distributed``, of which the
            first makes this call and all others call `selection.shards.ranks.follow`; or ``here``, one after the other.
        address: Of a Ray cluster.
        given: What is held already, see `select_documents`.
        progress: Called with a line of text, the step and the number of steps.
        settings: Fields of `SelectionConfig`, and of the policy's own settings.

    Raises:
        ConfigurationError: a setting that is wrong, or that cannot be kept over shards.
        LostMemberError: processes or actors were lost again and again; one that is lost once is made good.
        InputError: files that cannot be used, naming the file or the document's number.
    """
    config, metrics = over_shards(config, settings)
    require_given(given)
    shards = numbered(shards)
    folder = Path(folder).absolute()
    jobs = jobs_of(shards, config, members_of(engine, workers))
    for left in reversed(range(TEAMS)):
        timings, curve = Timings(), Curve(progress)
        try:
            with torch_threads(1), team_of(engine, jobs, address) as team, torch.inference_mode():
                result = _by_team(team, config, metrics, shards, given, folder, timings, curve)
        except LostMemberError as error:
            if not left:
                raise LostMemberError(
                    f"{error}, and {TEAMS - 1} before it; run it again, with more memory or fewer documents a process if "
                    "the machine ran out of it (status -9)"
                ) from error
            logger.warning("%s; the selection begins again with new ones", error)
        else:
            break
    return replace(result, curve=curve.table(), timings=timings.seconds())


def _by_team(
    team: Team,
    config: SelectionConfig,
    metrics: Sequence[tuple[DiversityMetric, float]],
    shards: Sequence[Shard],
    given: Given | None,
    folder: Path,
    timings: Timings,
    curve: Curve,
) -> ShardedSelection:
    """The whole selection by one team of members, of which none is lost."""
    with timings.phase("checks"):
        people, opened = _opened(team, config, total_rows(shards), given)
        if config.quotas is not None:
            sizes = zip(sorted(config.quotas), people.limits.sizes_G.tolist(), strict=True)
            tell_of_unmet([name for name, size in sizes if not size], opened["groups"])
    with timings.phase("normalisation"):
        names = sorted_scores(shards)
        function, constants, random_value = _posed(people, config, metrics, names, given)
    with timings.phase("learning"):
        if isinstance(metrics[0][0], CoverageMetric):
            ended = _by_regions(people, function, shards, folder, random_value, curve)
        else:
            learner = Learner(people, function, config.arithmetic, config.chunk_rows)
            ended = _by_moments(learner, config, random_value, curve)
    with timings.phase("evaluation"):
        return _result(people, function, config, constants, random_value, ended, opened, names, given, folder)


def scale_over_shards(
    shards: Sequence[Shard], given: Given | None, settings: Mapping[str, Any]
) -> tuple[dict[str, tuple[float, float]], float]:
    """The terms' scale and the mean objective of random masks, as a selection over these shards measures them.

    Args:
        shards: Where the documents lie.
        given: What is held, if anything is.
        settings: As of `select_over_shards`.
    """
    config, metrics = over_shards(None, settings)
    shards = numbered(shards)
    with torch_threads(1), Together(jobs_of(shards, config, 1)) as team, torch.inference_mode():
        people, _ = _opened(team, config, total_rows(shards), given)
        _, constants, random_value = _posed(people, config, metrics, sorted_scores(shards), given)
    return constants, random_value


def over_shards(
    config: SelectionConfig | None, settings: Mapping[str, Any]
) -> tuple[SelectionConfig, list[tuple[DiversityMetric, float]]]:
    """The settings and metrics, refused where no selection over shards can keep them.

    Raises:
        ConfigurationError: naming what is refused, and what to do instead.
    """
    for name in settings:
        if name in NOT_OFFERED:
            raise ConfigurationError(f"over shards there is no `{name}`: {NOT_OFFERED[name]}")
    config, metrics, policy = check_settings(config=config, **settings)
    if not isinstance(policy, DataMaskPolicy):
        raise ConfigurationError(f"over shards only policy 'datamask' selects, not {config.policy!r}")
    if config.quality_pruning:
        raise ConfigurationError("over shards nothing is pruned by quality; leave out quality_pruning")
    if config.outlier_deviations is not None:
        raise ConfigurationError("over shards no neighbours are sought; leave out outlier_deviations")
    others = sorted(metric.name for metric, _ in metrics if not isinstance(metric, MomentMetric))
    if others and not (len(metrics) == 1 and isinstance(metrics[0][0], CoverageMetric)):
        raise ConfigurationError(
            f"over shards metrics must be of moments, which add up, or Facility alone; {', '.join(others)} beside others "
            "is not: use Pair_simi, DiSF_uncentred, LogDet, Vendi or DiSF together, or select in blocks"
        )
    return config, metrics


def jobs_of(shards: Sequence[Shard], config: SelectionConfig, workers: int) -> list[dict[str, Any]]:
    """What each member needs to know, as JSON values."""
    own = config.model_dump(mode="json", exclude_unset=True)
    threads = config.num_workers or max(1, num_cores() // workers)
    return [
        {
            "config": own,
            "shards": [shard.plain() for shard in part],
            "num_rows": total_rows(shards),
            "tokens": config.num_tokens is not None,
            "scores": sorted_scores(shards),
            "threads": threads,
            "place": place,
            "num_members": workers,
        }
        for place, part in enumerate(dealt(shards, workers, config.chunk_rows))
    ]


def sorted_scores(shards: Sequence[Shard]) -> list[str]:
    """Names of the quality scores, the same in every shard, in the first one's order.

    Raises:
        InputError: shards with different ones.
    """
    names = list(shards[0].quality)
    for shard in shards:
        if set(shard.quality) != set(names) or not names:
            raise InputError(
                f"every shard needs the scores {sorted(names)}",
                file=str(shard.vectors),
                field="quality",
                value=sorted(shard.quality),
            )
    return names


def _opened(
    team: Team, config: SelectionConfig, num_rows: int, given: Given | None
) -> tuple[Population, dict[str, Any]]:
    """Every vector and number looked at; the documents under their budget."""
    parts = [part for part in team.parts("open") if part["dim"]]
    dims = {(part["dim"], part["dtype"]) for part in parts}
    if len(dims) > 1:
        raise InputError(
            "shards hold vectors of different widths or types", field="vectors", value=sorted(dims)
        )
    dim, num_normalised = parts[0]["dim"], sum(part["num_normalised"] for part in parts)
    num_groups = len(config.quotas or [None])
    most_cost = None if config.num_tokens is None else config.num_tokens // 2
    sums, told = team.ask(
        "begin", normalise=num_normalised > 0, dim=dim, num_groups=num_groups, most_cost=most_cost
    )
    largest = max(told, key=lambda part: part["largest"])
    left_out, tokens_out = sums["left_out"].tolist()
    groups = {name for part in parts for name in part["groups"]}
    most = max(part["most_cost"] for part in told)
    limits = _limits(config, sums["counts"], tokens_out, largest, most, groups)
    _, metrics = over_shards(config, {})
    second = any(isinstance(metric, MomentMetric) and metric.needs_second for metric, _ in metrics)
    held = None if given is None else given.moments(second)
    people = Population(team, WHOLE, limits, dim, held, second)
    record = {
        "rows": num_rows,
        "left_out": {"rows_too_long": left_out} if left_out else {},
        "rows_normalised_to_unit": num_normalised,
        "embeddings_digest": digest_of(parts),
        "tokens": config.num_tokens is not None,
        "groups": groups,
    }
    return people, record


def _limits(
    config: SelectionConfig,
    counts_2G: NDArray[np.int64],
    tokens_out: int,
    largest: Mapping[str, int],
    most_cost: int,
    groups: Collection[str],
) -> Limits:
    """The budget of all documents, see `inputs.budget_of` and `pruning.prune`.

    Args:
        config: The settings.
        counts_2G: Documents that are not left out, and what they take, by group.
        tokens_out: Tokens of those that are.
        largest: Of all documents.
        most_cost: What the largest takes that is not left out.
        groups: The documents' groups, each once.
    """
    num_rows, in_all = int(counts_2G[0].sum()), int(counts_2G[1].sum()) + tokens_out
    if config.num_tokens is not None:
        if config.num_tokens > in_all:
            raise ConfigurationError(
                f"num_tokens {config.num_tokens} is more than the shards' {in_all} tokens"
            )
        if num_rows < 2:
            raise no_two_fit(config.num_tokens, largest["largest_row"], largest["largest"])
        limits = [config.num_tokens]
    else:
        total = config.num_documents or documents_of(config.ratio, num_rows)
        if not 2 <= total <= num_rows:
            raise ConfigurationError(
                f"the budget is {total} of {num_rows} documents; select at least 2 and at most all: change "
                f"`{config.budget}`, which is {getattr(config, config.budget)}"
            )
        limits = [total]
        if config.quotas is not None:
            names = sorted(config.quotas)
            limits = shared_out([config.quotas[name] * total for name in names], total)
            for name, limit, size in zip(names, limits, counts_2G[0].tolist(), strict=True):
                if limit > size:
                    near = "" if size else nearest(name, {*groups} - {*names})
                    raise unmet_quota(name, config.quotas[name], limit, size, "whole of the shards", near)
    return Limits(
        limits_G=np.array(limits, np.int64),
        tokens=config.num_tokens is not None,
        sizes_G=counts_2G[0],
        totals_G=counts_2G[1],
        most_cost=most_cost,
        seed=config.seed,
    )


def _posed(
    people: Population,
    config: SelectionConfig,
    metrics: Sequence[tuple[DiversityMetric, float]],
    scores: Sequence[str],
    given: Given | None,
) -> tuple[ObjectiveFunction, dict[str, tuple[float, float]], float]:
    """The objective on the terms' common scale, the scale, and the mean objective of random masks."""
    named = [metric.name for metric, _ in metrics]
    if len({*scores, *named}) < len(scores) + len(named):
        raise ConfigurationError(f"a quality score and a diversity metric share a name: {[*scores, *named]}")
    if given is not None:
        require_beside(config.policy, DataMaskPolicy, {metric.name: metric for metric, _ in metrics})
        require_fitting(given, people.dim, list(scores), people.second)
    require_range(metrics, config, people.limits.num_documents + (0.0 if given is None else given.count))
    zeros = random_means(people, [metric for metric, _ in metrics])
    constants = constants_of(people, config, [metric for metric, _ in metrics], scores, zeros, given)
    of_scores = {name: list(constants[name]) for name in scores}
    people.team.later("quality", weights=config.quality_weights, constants=of_scores)
    total = sum(weight for _, weight in metrics)
    terms = tuple(
        Term(
            name=metric.name,
            metric=metric,
            weight=weight / total,
            zero=constants[metric.name][0],
            one=constants[metric.name][1],
        )
        for metric, weight in metrics
    )
    quality = 0.0 if given is None else held_quality(given, config.quality_weights, constants)
    function = ObjectiveFunction(
        lamb=config.lamb,
        quality_N=NOTHING,
        terms=terms,
        held_count=0.0 if given is None else given.count,
        held_quality=quality,
    )
    random_value = 0.0
    if config.normalisation == "none" or config.normalisation_constants is not None:
        mean = function.mean_quality(random_mean(people, "quality"), people.limits.num_documents)
        random_value = function.combine(mean, function.diversity(zeros))
    return function, constants, random_value


@dataclass(frozen=True, kw_only=True)
class _Ended:
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


def _by_regions(
    people: Population,
    function: ObjectiveFunction,
    shards: Sequence[Shard],
    folder: Path,
    random_value: float,
    curve: Curve,
) -> _Ended:
    """Column ``mask`` of a coverage metric, and columns ``diversity_marginal`` and ``dual``."""
    num_rows = total_rows(shards)
    found = choose_by_regions(people, function, shards, folder / "regions", num_rows)
    (term,) = function.terms
    quality = people.dots(("mask", "quality"))[0] / int(people.counts("mask")[0].sum())
    value = function.combine(quality, function.diversity({term.name: found.raw}))
    record: dict[str, Any] = {"step": 1, "num_steps": 1, "objective": value}
    bound = None if found.bound is None else max(found.bound, value)
    if bound is not None:
        record |= {"bound": bound, "gap": max(0.0, gap_of(people, random_value, bound, value))}
    curve(record)
    return _Ended(
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
    """

    def __init__(
        self, learner: Learner, options: DataMaskConfig, random_value: float, curve: Curve, strict: bool
    ) -> None:
        self.learner, self.options, self.random_value, self.curve = learner, options, random_value, curve
        self.strict = strict

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
            "num_steps": self.options.num_steps,
            "objective": value,
        }
        if bound is not None:
            record |= {"bound": bound, "gap": max(0.0, self.gap(bound, value))}
        self.curve(record)
        return enough


def _by_moments(learner: Learner, config: SelectionConfig, random_value: float, curve: Curve) -> _Ended:
    """Column ``mask``: the best mask found; columns ``weights`` and ``final`` are of the relaxed one."""
    people, options = learner.population, DataMaskConfig.model_validate(_own(config))
    steps = _Steps(learner, options, random_value, curve, strict=not learner.proves_by_marginals)
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
        steps.strict &= climb.step < options.num_steps
        if steps.strict:
            people.copy("earlier", "mask")
    if steps.strict:
        earlier = value if learner.proves_by_marginals else -math.inf
        climb, more = _climbed(learner, climb, steps)
        swaps += more
        if learner.value("mask") < earlier:
            people.copy("mask", "earlier")
        by_quality = people.limits.tokens and _filled(learner)
        moments = people.moments("mask")
        learner.marginals("mask", moments)
    bound = learner.known_bound
    told: dict[str, Any] = {
        "over": "shards",
        "steps": climb.step,
        "swaps": swaps,
        "fractional": int(people.tally("weights")[0, 1]),
        "converged": True,
    }
    return _Ended(
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
    climb = learner.ascend(climb, steps.options.num_steps, steps)
    value, moments = learner.round("rounded", climb)
    if steps.strict:
        if not climb.graded:
            _graded(learner, climb)
        people.copy("final", "gradient")
    people.copy("mask", "rounded")
    rounds, bands = steps.options.num_swap_rounds, MOST_BANDS if steps.strict else 1
    return climb, learner.improve("mask", value, moments, rounds, steps.goal(), bands)


def _filled(learner: Learner) -> bool:
    """Fill up column ``mask`` of a budget in tokens; whether the best by quality alone is better, and taken instead."""
    people = learner.population
    people.filled("mask", "mask", "weights")
    people.best("plain", "quality", exact=True)
    values = {name: learner.value(name) for name in ("mask", "rounded", "plain")}
    best = max(values, key=values.__getitem__)
    people.copy("mask", best)
    return best == "plain"


def _own(config: SelectionConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in DataMaskConfig.model_fields if hasattr(config, name)}


def _graded(learner: Learner, climb: Climb) -> float | None:
    """Column ``gradient`` in float32 at the weights, and the bound there or a better one."""
    form, _ = learner.gradient(climb.moments, "float32")
    climb.graded = True
    return learner.certify(form, climb.moments)


def _result(
    people: Population,
    function: ObjectiveFunction,
    config: SelectionConfig,
    constants: dict[str, tuple[float, float]],
    random_value: float,
    ended: _Ended,
    opened: Mapping[str, Any],
    scores: Sequence[str],
    given: Given | None,
    folder: Path,
) -> ShardedSelection:
    """What the mask is worth, why each document is in or out, and the files of columns."""
    counts_2G = people.counts("mask")
    for group, limit in enumerate(people.limits.limits_G.tolist()):
        taken = int(counts_2G[1, group])
        if taken > limit or (taken < limit and not people.limits.tokens):
            raise InternalError(
                f"over shards policy 'datamask' chose {taken} where the budget of group {group} is {limit}; please report it"
            )
    count = float(counts_2G[0].sum()) + function.held_count
    (summed,) = people.dots(("mask", "quality"))
    quality, diversity = (summed + function.held_quality) / count, function.diversity(ended.raw)
    value = function.combine(quality, diversity)
    people.combine("quality_marginal", (function.lamb / count, "quality"))
    people.combine("total", (1.0, "quality_marginal"), (1.0, "diversity_marginal"))
    chosen_G = counts_2G[0].tolist()
    threshold = float(people.kth("total", [sum(chosen_G)])[0])
    cuts_G = people.kth("total", chosen_G) if len(chosen_G) > 1 else np.array([threshold])
    reasons = people.team.sums("reasons", name="total", mask="mask", cuts=cuts_G)["count"]
    bound = None if ended.bound is None else max(ended.bound, value)
    _write(people, folder, opened["rows"], ended)
    too_long = sum(opened["left_out"].values())
    record: dict[str, Any] = {
        "config": config.result_config(),
        "device": config.device,
        "diversity": {term.name: term.weight for term in function.terms},
        "diversity_metrics": {term.name: made_with(term.metric) for term in function.terms},
        "rows": opened["rows"],
        "rows_pruned_by_quality": 0,
        **opened["left_out"],
        "rows_normalised_to_unit": opened["rows_normalised_to_unit"],
        "selected": int(sum(chosen_G)),
        "embeddings_digest": opened["embeddings_digest"],
        "learner": ended.learner,
        "versions": {"torch": torch.__version__, "numpy": np.__version__, "pyarrow": pa.__version__},
        "processor": platform.processor() or platform.machine(),
        "reasons": {REASONS[code]: int(count) for code, count in enumerate([*reasons, too_long]) if count},
    }
    if opened["tokens"]:
        record["selected_tokens"] = int(counts_2G[1].sum())
    if config.quotas is not None:
        names = sorted(config.quotas)
        record["group_thresholds"] = {
            names[group]: float(cut) for group, cut in enumerate(cuts_G) if np.isfinite(cut)
        }
    tokens = record.get("selected_tokens")
    return ShardedSelection(
        folder=folder,
        threshold=threshold,
        curve=pa.table({}),
        objective=Objective(
            value=value, quality=quality, diversity=diversity, random=random_value, raw=ended.raw
        ),
        certificate=Certificate(
            bound=bound,
            gap=None if bound is None else gap_of(people, random_value, bound, value),
            method=ended.method,
        ),
        normalisation=constants,
        timings={},
        held=None if ended.moments is None else _held(people, ended.moments, scores, tokens, given),
        record=record,
    )


def _held(
    people: Population, moments: Moments, scores: Sequence[str], tokens: int | None, given: Given | None
) -> Given:
    """What is held now, for the next selection."""
    sums = people.dots(*(("mask", f"score/{name}") for name in scores))
    before = dict.fromkeys(scores, 0.0) if given is None else given.quality
    quality = {name: total + before[name] for name, total in zip(scores, sums, strict=True)}
    held = None if tokens is None else float(tokens)
    if given is not None:
        held = None if held is None or given.tokens is None else held + given.tokens
    return Given.of_moments(moments, quality, held)


def _argument(learner: Learner, bound: float | None) -> str:
    if bound is not None:
        return (
            "Frank-Wolfe: the concave relaxation's tangent at the relaxed optimum, maximised over all masks"
        )
    if learner.population.limits.tokens:
        return "no bound: over shards none is computed where the budget is in tokens"
    names = [term.name for term, metric in learner.function.moment_terms or () if not metric.concave]
    return f"no bound: {', '.join(names)} is not concave in the relaxed mask"


def _write(people: Population, folder: Path, num_rows: int, ended: _Ended) -> None:
    """The files of columns: made here at their whole length, filled by every process with its own part."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, kind in COLUMNS.items() | ({(ended.certified_at, "<f8")} if ended.bound is not None else set()):
        files[name] = str(folder / f"{name}.npy")
        np.lib.format.open_memmap(files[name], mode="w+", dtype=kind, shape=(num_rows,)).flush()
    people.copy("probability", ended.weights)
    parts = people.team.parts("range", name=ended.scores)
    low, high = (float(end([part[name] for part in parts])) for end, name in ((min, "low"), (max, "high")))
    people.team.ask(
        "write",
        files=dict(sorted(files.items())),
        weights=ended.weights,
        scores=ended.scores,
        low=low,
        high=high,
    )
