"""One selection over documents of several processes: shards in, files of columns and a certificate out.

Knows no transport beyond its name.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from datamask_pipeline.diversity.base import CoverageMetric, DiversityMetric
from datamask_pipeline.diversity.moments import MomentMetric
from datamask_pipeline.errors import ConfigurationError, InputError, LostMemberError
from datamask_pipeline.hardware import num_cores, torch_threads
from datamask_pipeline.selection.api import check_settings
from datamask_pipeline.selection.config import SelectionConfig
from datamask_pipeline.selection.given import Given, require_given
from datamask_pipeline.selection.groups import tell_of_unmet
from datamask_pipeline.selection.policies.datamask import DataMaskPolicy
from datamask_pipeline.selection.progress import Curve, Progress
from datamask_pipeline.selection.shards.carriers import Engine, members_of, team_of
from datamask_pipeline.selection.shards.choose import by_moments, by_regions
from datamask_pipeline.selection.shards.learner import Learner
from datamask_pipeline.selection.shards.problem import open_documents, pose
from datamask_pipeline.selection.shards.result import ShardedSelection, measured_result
from datamask_pipeline.selection.shards.source import Shard, dealt, numbered, total_rows
from datamask_pipeline.selection.shards.team import Team, Together
from datamask_pipeline.selection.timings import Timings

logger = logging.getLogger(__name__)

TEAMS = 3
"""So many sets of processes are begun at most, of which all but the last lost one."""
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
    if not isinstance(folder, str | Path):
        raise ConfigurationError(f"folder must be the path of a folder, not {folder!r:.120}")
    folder = Path(folder).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigurationError(f"folder {folder} is a file, or lies below one; give another") from error
    room = folder if engine in ("processes", "here") else None  # of other machines their own disk
    jobs = jobs_of(shards, config, members_of(engine, workers), room)
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
        people, opened = open_documents(team, config, metrics, total_rows(shards), given)
        if config.quotas is not None:
            sizes = zip(sorted(config.quotas), people.limits.sizes_G.tolist(), strict=True)
            tell_of_unmet([name for name, size in sizes if not size], opened["groups"])
    with timings.phase("normalisation"):
        names = sorted_scores(shards)
        function, constants, random_value = pose(people, config, metrics, names, given)
    with timings.phase("learning"):
        if isinstance(metrics[0][0], CoverageMetric):
            ended = by_regions(people, function, config, shards, folder, random_value, curve)
        else:
            learner = Learner(people, function, config.arithmetic, config.chunk_rows)
            ended = by_moments(learner, config, random_value, curve)
    with timings.phase("evaluation"):
        return measured_result(
            people, function, config, constants, random_value, ended, opened, names, given, folder
        )


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
        people, _ = open_documents(team, config, metrics, total_rows(shards), given)
        _, constants, random_value = pose(people, config, metrics, sorted_scores(shards), given)
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
            f"over shards metrics must be of moments, which add up, or Facility alone, not {', '.join(others)}"
            f"{' beside others' if len(metrics) > 1 else ''}: use Pair_simi, DiSF_uncentred, LogDet, Vendi or DiSF "
            "together, or select in blocks"
        )
    for metric, _ in metrics:
        if isinstance(metric, CoverageMetric) and config.diversity_options.get(metric.name):
            raise ConfigurationError(
                f"over shards every document is a reference of {metric.name}; leave out diversity_options.{metric.name}"
            )
    return config, metrics


def jobs_of(
    shards: Sequence[Shard], config: SelectionConfig, workers: int, room: Path | None = None
) -> list[dict[str, Any]]:
    """What each member needs to know, as JSON values.

    Args:
        shards: Where the documents lie.
        config: All settings.
        workers: Members.
        room: The folder of long columns, see `spill.Room`; of each machine its temporary one by default.
    """
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
            "room": None if room is None else str(room),
            "num_members": workers,
        }
        for place, part in enumerate(dealt(shards, workers, config.chunk_rows))
    ]


def sorted_scores(shards: Sequence[Shard]) -> list[str]:
    """Names of the quality scores, the same in every shard; scores are added up in this order.

    Raises:
        InputError: shards with different ones.
    """
    names = sorted(shards[0].quality)
    for shard in shards:
        if set(shard.quality) != set(names) or not names:
            raise InputError(
                f"every shard needs the scores of the first, {', '.join(names) or 'which has none'}",
                file=str(shard.vectors),
                field="quality",
                value=sorted(shard.quality),
            )
    return names
