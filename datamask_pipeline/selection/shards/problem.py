"""What is asked of the documents of several processes: their budget, the terms' scale, the objective.

Knows no learner. Shape suffixes: G groups.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.diversity.base import DiversityMetric
from datamask_pipeline.diversity.moments import MomentMetric
from datamask_pipeline.errors import ConfigurationError, InputError
from datamask_pipeline.selection.budget import no_two_fit, shared_out, unmet_quota
from datamask_pipeline.selection.config import SelectionConfig, require_beside
from datamask_pipeline.selection.given import Given, require_fitting
from datamask_pipeline.selection.groups import nearest
from datamask_pipeline.selection.metrics import require_range
from datamask_pipeline.selection.normalisation import held_quality
from datamask_pipeline.selection.objective import ObjectiveFunction, Term
from datamask_pipeline.selection.policies.datamask import DataMaskPolicy
from datamask_pipeline.selection.ratio import documents_of
from datamask_pipeline.selection.shards.member import WHOLE, digest_of
from datamask_pipeline.selection.shards.population import Limits, Population
from datamask_pipeline.selection.shards.scale import NOTHING, constants_of, random_mean, random_means
from datamask_pipeline.selection.shards.team import Team


def open_documents(
    team: Team,
    config: SelectionConfig,
    metrics: Sequence[tuple[DiversityMetric, float]],
    num_rows: int,
    given: Given | None,
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


def pose(
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
        held_in_part=given is not None and given.in_part,
    )
    random_value = 0.0
    if config.normalisation == "none" or config.normalisation_constants is not None:
        mean = function.mean_quality(random_mean(people, "quality"), people.limits.num_documents)
        random_value = function.combine(mean, function.diversity(zeros))
    return function, constants, random_value
