"""The schedule: on the first of a month, a new release of the rolling ones that the configuration makes monthly.

A tick asks for the job that freezes it, and writes nothing itself; the sensor `advance` alone asks for the runs of stages.
"""

import dagster as dg

from assets.freeze import freeze_job, refused, request, to_freeze
from datamask_pipeline.pipeline.rolling import this_month
from resources import PipelineResource


@dg.schedule(
    job=freeze_job,
    cron_schedule="0 3 1 * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="For each release of the configuration with `every: month`, asks for a new one to be frozen, if a crawl was "
    "scored since the last. The sensor `advance` then selects, pretrains and evaluates.",
)
def monthly_release(
    context: dg.ScheduleEvaluationContext, pipeline: PipelineResource
) -> list[dg.RunRequest] | dg.SkipReason:
    """Select again, now that there are more crawls."""
    chain = pipeline.pipeline()
    if all(release.every != "month" for release in chain.config.releases.values()):
        return dg.SkipReason("no release of the configuration has `every: month`")
    unscored = chain.crawls()  # a schedule does not come back tomorrow: it takes what is scored by now
    month = this_month(context.scheduled_execution_time)
    members = to_freeze(chain, "month", month, unscored)
    return [request(member) for member in members] or dg.SkipReason(
        "; ".join(refused(chain, month))
        or "no crawl was scored since the last release, or the month has its own already"
    )


SCHEDULES = (monthly_release,)
