"""The job and the schedule that remove what of the record nobody refers to any more. Knows no stage."""

import dagster as dg
import pydantic

from assets.factory import RETRIES
from datamask_pipeline.cli.sweep import line
from datamask_pipeline.compliance.retention import DAYS, MOST_DAYS, forget, leftovers
from datamask_pipeline.errors import DataMaskError, StorageError
from resources import PipelineResource


class SweepConfig(dg.Config):
    """As the options of `datamask sweep`; a run tells only, unless `remove`.

    No bounds: Dagster makes this before the step begins, and would try what they refuse three times.
    """

    remove: bool = pydantic.Field(False, description="Remove what is told; without it nothing is written.")
    days: float = pydantic.Field(
        float(DAYS), description=f"How long what is superseded or unfinished stays: 0 to {MOST_DAYS:,}."
    )
    models: bool = pydantic.Field(
        False, description="Take superseded models too, and what only these were made from."
    )


@dg.op(
    description="Tells what of the record nothing standing refers to, and removes it where `remove` is set.",
    retry_policy=RETRIES,
)
def sweep_record(context: dg.OpExecutionContext, config: SweepConfig, pipeline: PipelineResource) -> None:
    """One log line for each version; the sum is metadata of the output."""
    store = pipeline.pipeline().store
    done, versions, num_bytes = "removed" if config.remove else "would remove", 0, 0
    try:
        store.refuse_missing()
        found = leftovers(store, days=config.days, with_models=config.models)
        for each in forget(store, found) if config.remove else found:  # each is told once it is gone
            versions, num_bytes = versions + 1, num_bytes + each.num_bytes
            context.log.info(line(each, done))
    except StorageError:
        raise
    except DataMaskError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    context.add_output_metadata({f"{done}: versions": versions, f"{done}: bytes": num_bytes})


@dg.job(
    description="Tells, or removes, superseded versions that nothing standing refers to, as `datamask sweep`."
)
def sweep_job() -> None:
    """One step."""
    sweep_record()


sweep_weekly = dg.ScheduleDefinition(
    name="sweep_weekly",
    job=sweep_job,
    cron_schedule="0 4 * * 0",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    run_config={"ops": {"sweep_record": {"config": {"remove": True}}}},
    description=f"Removes what was superseded {DAYS} days ago and nothing standing refers to. Off until it is "
    "switched on; run `sweep_job` before, which only tells.",
)
