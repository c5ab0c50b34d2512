"""The job that freezes a release: its run writes the record, so that no evaluation of a tick has to. Knows no stage."""

import logging
from collections.abc import Iterator, Sequence

import dagster as dg
import pydantic

from assets.factory import RETRIES
from assets.partitions import RELEASES
from datamask_pipeline.errors import ConfigurationError, DataMaskError, StorageError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.pipeline.rolling import Member, new_members
from datamask_pipeline.stages import score
from resources import PipelineResource

logger = logging.getLogger(__name__)


#: Of a run's key; no name of a release has a blank.
_FREEZE, _AFTER = "freeze ", " after "


class FreezeConfig(dg.Config):
    """What a tick of a sensor or schedule saw; by hand, the name of a configured release is enough."""

    release: str = pydantic.Field(description="The release; by hand nothing else is needed.")
    rolls: str = pydantic.Field("", description="The rolling release that makes it; empty: none does.")
    crawls: list[str] | None = pydantic.Field(
        None, description="Its crawls, where a rolling release makes it; else the configuration gives them."
    )
    given: str | None = pydantic.Field(
        None, description="The release that it goes on from, where a rolling release makes it."
    )


@dg.op(
    description="Freezes a release with the crawls given, or those that the configuration gives it.",
    retry_policy=RETRIES,
)
def freeze_release(context: dg.OpExecutionContext, config: FreezeConfig, pipeline: PipelineResource) -> None:
    """Freeze a release, and name it as a partition; one that is frozen stays as it is."""
    chain = pipeline.pipeline()
    try:
        if config.rolls:
            chain.freeze(Member(config.release, config.rolls, tuple(config.crawls or ()), config.given))
        crawls = chain.release_crawls(config.release)
    except StorageError:
        raise
    except DataMaskError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    context.log.info(f"release {config.release} is frozen with {', '.join(crawls)}")
    context.instance.add_dynamic_partitions(str(RELEASES.name), [config.release])


@dg.job(description="Freezes a release. The sensor `advance` then runs what is missing of it.")
def freeze_job() -> None:
    """One step."""
    freeze_release()


def release_of(run_key: str) -> str:
    """Which release a run was asked for to freeze."""
    return run_key.removeprefix(_FREEZE).partition(_AFTER)[0]


def request(member: Member, after: str = "") -> dg.RunRequest:
    """Asks for a rolling release to be frozen as a tick saw it; each once, or once more after a run that was of another
    record.
    """
    values = {
        "release": member.name,
        "rolls": member.rolls,
        "crawls": [*member.crawls],
        "given": member.given,
    }
    return dg.RunRequest(
        run_key=f"{_FREEZE}{member.name}{_AFTER + after if after else ''}",
        job_name=freeze_job.name,
        run_config={"ops": {"freeze_release": {"config": values}}},
    )


def to_freeze(pipeline: Pipeline, every: str, month: str, failed: Sequence[str] = ()) -> list[Member]:
    """What rolling releases of a kind make now of the crawls that are scored, unless one is on its way; writes nothing.

    One that goes on from a release that cannot be planned makes nothing, which is told in the log.

    Args:
        pipeline: The chain.
        every: The kind.
        month: The current one, as 2026-11.
        failed: Crawls that nobody waits for.
    """
    scored = set(pipeline.store.keys(score.STAGE))
    crawls = pipeline.crawls()
    if any(crawl not in scored and crawl not in failed for crawl in crawls):
        return []
    known = [crawl for crawl in crawls if crawl in scored]
    templates = [name for name, release in pipeline.config.releases.items() if release.every == every]
    members: list[Member] = []
    for name in templates:
        try:
            members += new_members(pipeline, name, known, month)
        except ConfigurationError as error:  # others are made all the same
            logger.warning("nothing is made by release %s: %s", name, error)
    return members


def refused(pipeline: Pipeline, month: str) -> Iterator[str]:
    """The rolling releases that `to_freeze` passes over, with what is wrong with each."""
    for name, release in pipeline.config.releases.items():
        if release.every is not None:
            try:
                new_members(pipeline, name, pipeline.crawls(), month)
            except ConfigurationError as error:
                yield f"release {name} is refused: {error}"
