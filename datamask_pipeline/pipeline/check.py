"""Refuses before any work what a stage would refuse later. Knows flow, settings and source.

Of the documents it reads the first of each crawl at most.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from datamask_pipeline.errors import (
    ConfigurationError,
    DataMaskError,
    InputError,
    UnknownNameError,
    suggestion,
)
from datamask_pipeline.families import METRICS, POLICIES, SCORERS
from datamask_pipeline.pipeline.config import PipelineConfig
from datamask_pipeline.pipeline.crew import refuse_missing_engine
from datamask_pipeline.pipeline.stage import Stage
from datamask_pipeline.quality.trained import TrainedScorer
from datamask_pipeline.schema import DOCUMENTS
from datamask_pipeline.selection.config import OTHER_GROUPS, require_beside
from datamask_pipeline.sources.base import Source
from datamask_pipeline.stages import compare, materialise, pretrain, probe, score, select


def check(
    config: PipelineConfig, source: Source, releases: Mapping[str, Sequence[str]], stages: Sequence[Stage]
) -> None:
    """Check the settings of some stages: each by its own ``check``, and what two of them have to agree on.

    Args:
        config: Every setting.
        source: The document source.
        releases: The crawls of each release.
        stages: The stages.

    Raises:
        DataMaskError: what is wrong, and where in the configuration.
    """
    names = {stage.name for stage in stages}
    refuse_missing_engine(config, names)
    crawls = sorted({crawl for members in releases.values() for crawl in members})
    for stage in stages:
        for member, settings in config.settings(stage).items():
            with _named(f"{stage.scope} {member!r}" if member else ""):
                if hasattr(stage.module, "check") and stage.name != select.STAGE:
                    stage.module.check(settings)
    if score.STAGE in names and config.embed.imported_file:
        _check_examples_have_vectors(config)
    refuse_missing_crawls(source, releases)
    for crawl in crawls:
        source.check(crawl)
        if score.STAGE in names:
            check_score_columns(config, source, crawl)
    if select.STAGE in names:
        for arm in config.arms:
            _check_arm(config, arm, releases)
    if pretrain.STAGE in names and not config.pool.validation_share:
        raise ConfigurationError(
            "pool.validation_share is 0, but models are validated on documents that no arm sees; raise it, or stop at "
            f"{materialise.STAGE}"
        )
    if compare.STAGE in names:
        baseline = compare.baseline_among(config.compare, config.arms)
        if baseline not in config.arms:
            raise UnknownNameError("arm to compare with", baseline, config.arms, "compare.baseline")


def refuse_missing_crawls(source: Source, releases: Mapping[str, Sequence[str]]) -> None:
    """Refuse a crawl that a release has and the source has no longer, and say whose it is.

    Args:
        source: The document source.
        releases: The crawls of each release.

    Raises:
        InputError: naming the crawl, the releases and the remedy.
    """
    present = source.crawls()
    missing = {crawl for crawls in releases.values() for crawl in crawls} - {*present}
    if missing:
        crawl = min(missing)
        owners = [name for name, crawls in releases.items() if crawl in crawls]
        retire = " and ".join(f"`datamask retire {name}`" for name in owners)
        why = source.about_missing(crawl)
        raise InputError(
            f"no such crawl any more, though a release has it: {', '.join(owners)}; there are: {', '.join(present)}"
            + (why and f"; {why}"),
            field="source",
            value=crawl,
            remedy=f"put its files back where they were, or leave out what needs them: {retire}, with the configuration "
            "of this command",
        )


def check_score_columns(config: PipelineConfig, source: Source, crawl: str) -> None:
    """Refuse scorers that read a column which a crawl does not have, or has of another type.

    Raises:
        InputError: naming scorer, crawl and column.
    """
    for scorer in SCORERS.make_each(config.score.scorers, config.score.options, "score.options"):
        wanted = [column for column in scorer.columns if column not in DOCUMENTS.names]
        fields = source.known_fields(crawl) if wanted else None
        kinds = {field.name: field.type for field in [*DOCUMENTS, *(fields or ())]}
        with _named(f"score.options.{scorer.name} in crawl {crawl!r}"):
            scorer.check_columns(kinds)
        if fields is None:
            continue
        known = [*DOCUMENTS.names, *(field.name for field in fields)]
        for column in wanted:
            if column not in known:
                raise InputError(
                    f"score.scorers: {scorer.name!r} reads a column that crawl {crawl!r} does not have"
                    f"{suggestion(column, known)}; there are: {', '.join(known)}",
                    field=column,
                    remedy=f"name another in `score.options.{scorer.name}`, or leave the scorer out",
                )


def _check_examples_have_vectors(config: PipelineConfig) -> None:
    for scorer in SCORERS.make_each(config.score.scorers, config.score.options, "score.options"):
        if isinstance(scorer, TrainedScorer):
            with _named(f"score.options.{scorer.name}"):
                probe.refuse_without_vectors(scorer.config)


def _check_arm(config: PipelineConfig, arm: str, releases: Mapping[str, Sequence[str]]) -> None:
    settings = config.select_config(arm)
    with _named(f"arm {arm!r}"):
        select.check(settings, functools.partial(config.arm_path, arm))
    for release, configured in config.releases.items():
        if configured.given is None or (configured.every is None and release not in releases):
            continue
        held = f"what release {release!r} holds of {configured.given!r}"
        with _named(f"arm {arm!r}"):
            policy = POLICIES.find(settings.policy)
            metrics = {name: METRICS.find(name) for name in settings.diversity_weights}
            require_beside(settings.policy, policy, metrics, held, functools.partial(config.arm_path, arm))
    for name in settings.scorers:
        if name not in config.score.scorers:
            raise UnknownNameError(
                f"scorer of arm {arm!r}", name, config.score.scorers, config.arm_path(arm, "scorers")
            )
    if settings.quotas is None or settings.quota_by != "crawl":
        return  # the domains are known once the documents are read
    where = config.arm_path(arm, "quotas")
    for release, crawls in releases.items():
        for name, share in settings.quotas.items():
            if share and name not in (*crawls, OTHER_GROUPS):
                raise UnknownNameError(f"crawl of release {release!r} in arm {arm!r}", name, crawls, where)
        without = [crawl for crawl in crawls if crawl not in settings.quotas]
        if without and OTHER_GROUPS not in settings.quotas:
            raise ConfigurationError(
                f"{where}: crawl {without[0]!r} of release {release!r} has no quota in arm {arm!r}; name it, or give "
                f"all others one as {OTHER_GROUPS!r}"
            )
        if settings.quotas.get(OTHER_GROUPS) and not without:
            raise ConfigurationError(
                f"{where}: {OTHER_GROUPS!r} has a share of arm {arm!r}, and release {release!r} has no crawl without a "
                f"quota of its own: {', '.join(crawls)}; leave {OTHER_GROUPS!r} out, or give it 0"
            )


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Say whose settings an error speaks of."""
    try:
        yield
    except DataMaskError as error:
        if where:
            error.args = (f"{where}: {error}",)
        raise
