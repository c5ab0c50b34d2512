"""The sensors: `discover` names what there is, `advance` runs what is missing. Knows no stage.

`AutomationCondition.eager` is not used: it never requests partitions that were there at its first tick, and a
release would not fire while any crawl of the record is missing.
"""

from collections.abc import Iterator

import dagster as dg

from assets.jobs import JOBS
from assets.partitions import CRAWLS, RELEASES
from assets.plan import BASIS_TAG, Wanted, runs, wanted
from datamask_pipeline.pipeline import FLOW, Pipeline
from datamask_pipeline.pipeline.stage import Group
from resources import PipelineResource

SECONDS_BETWEEN_TICKS = 60


@dg.sensor(
    minimum_interval_seconds=SECONDS_BETWEEN_TICKS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Adds the source's crawls and the releases of configuration and record as partitions. Runs nothing.",
)
def discover(context: dg.SensorEvaluationContext, pipeline: PipelineResource) -> dg.SensorResult:
    """Name what there is."""
    requests = _new_partitions(context.instance, pipeline.pipeline())
    if not requests:
        return dg.SensorResult(skip_reason="no new crawl and no new release")
    return dg.SensorResult(dynamic_partitions_requests=requests)


@dg.sensor(
    jobs=list(JOBS),
    minimum_interval_seconds=SECONDS_BETWEEN_TICKS,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Runs what is missing and has its inputs: crawls, then for each release its pool, arms, models and "
    "report. A run whose settings and inputs were seen before is not asked for again; a failed one waits for you.",
)
def advance(context: dg.SensorEvaluationContext, pipeline: PipelineResource) -> dg.SensorResult:
    """Run what is missing."""
    chain = pipeline.pipeline()
    missing = {run.basis: run for run in missing_runs(context.instance, chain)}
    return dg.SensorResult(
        run_requests=[
            dg.RunRequest(run_key=run.basis, job_name=run.job, partition_key=run.partition_key, tags=run.tags)
            for run in missing.values()
        ],
        dynamic_partitions_requests=_new_partitions(context.instance, chain),
        skip_reason=None if missing else "everything has run, is running, or has failed and waits for you",
    )


def missing_runs(instance: dg.DagsterInstance, pipeline: Pipeline) -> Iterator[Wanted]:
    """Runs that nobody asked for yet and whose inputs stand in the record."""
    for group in FLOW.groups:
        if group.scope == "crawl":
            for crawl in pipeline.crawls():
                run = wanted(pipeline, group, crawl)
                if _status(instance, run) is None:
                    yield run
    for release in pipeline.releases():
        done: set[Group] = set()
        for group in FLOW.groups:
            if FLOW.needed_by(group) <= done:
                states = {run: _status(instance, run) for run in runs(pipeline, group, release)}
                yield from (run for run, status in states.items() if status is None)
                if all(status is dg.DagsterRunStatus.SUCCESS for status in states.values()):
                    done.add(group)


def _status(instance: dg.DagsterInstance, run: Wanted) -> dg.DagsterRunStatus | None:
    """How the newest run of that basis stands; ``None`` if there is none."""
    found = instance.get_run_records(filters=dg.RunsFilter(tags={BASIS_TAG: run.basis}), limit=1)
    return found[0].dagster_run.status if found else None


def _new_partitions(
    instance: dg.DagsterInstance, pipeline: Pipeline
) -> list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]:
    requests: list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest] = []
    for definition, names in ((CRAWLS, pipeline.crawls()), (RELEASES, pipeline.releases())):
        known = set(instance.get_dynamic_partitions(str(definition.name)))
        if new := [name for name in names if name not in known]:
            requests.append(definition.build_add_request(new))
    return requests


SENSORS = (discover, advance)
