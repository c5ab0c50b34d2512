"""The schedule: a new release of everything that was crawled, scored and not yet released. Knows no stage."""

import dagster as dg

from assets.partitions import RELEASES
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.pipeline.flow import RELEASES as RELEASES_GROUP
from datamask_pipeline.stages import score
from resources import PipelineResource


@dg.schedule(
    job_name=RELEASES_GROUP.job,
    cron_schedule="0 3 1 * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Freezes every scored crawl as the release `monthly-<year>-<month>`, unless an earlier release has "
    "the same crawls. The sensor `advance` then selects, pretrains and evaluates.",
)
def monthly_release(
    context: dg.ScheduleEvaluationContext, pipeline: PipelineResource
) -> dg.RunRequest | dg.SkipReason:
    """Select again, now that there are more crawls."""
    chain = pipeline.pipeline()
    name = f"monthly-{context.scheduled_execution_time:%Y-%m}"
    crawls = chain.store.keys(score.STAGE)
    if name not in chain.releases():
        if same := _released_as(chain, crawls):
            return dg.SkipReason(f"no crawl was scored since release {same!r}")
        chain.freeze_release(name, crawls)
    context.instance.add_dynamic_partitions(str(RELEASES.name), [name])
    return dg.RunRequest(run_key=name, partition_key=name)


def _released_as(pipeline: Pipeline, crawls: list[str]) -> str | None:
    """A release of exactly these crawls."""
    for release in pipeline.releases():
        if set(pipeline.release_crawls(release)) == set(crawls):
            return release
    return None


SCHEDULES = (monthly_release,)
