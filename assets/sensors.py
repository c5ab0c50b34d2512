"""The sensors: `discover` names what there is, `advance` runs what is missing. Knows no stage.

`AutomationCondition.eager` is not used: it never requests partitions that were there at its first tick, and a
release would not fire while any crawl of the record is missing.
"""

from collections.abc import Iterator

import dagster as dg

from assets.freeze import freeze_job, request, to_freeze
from assets.jobs import JOBS
from assets.partitions import CRAWLS, RELEASES
from assets.plan import BASIS_TAG, Wanted, runs, wanted
from datamask_pipeline.pipeline import FLOW, Pipeline
from datamask_pipeline.pipeline.order import in_order
from datamask_pipeline.pipeline.rolling import Member, this_month
from datamask_pipeline.pipeline.stage import Group
from resources import PipelineResource

#: A tick costs a fraction of a second; what a release waits for is the tick after each of its groups of stages.
SECONDS_BETWEEN_TICKS = 10
FAILED = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


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
    jobs=[*JOBS, freeze_job],
    minimum_interval_seconds=SECONDS_BETWEEN_TICKS,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Runs what is missing and has its inputs: crawls, then for each release its pool, arms, models and "
    "report. A run whose settings and inputs were seen before is not asked for again; a failed one waits for you.",
)
def advance(context: dg.SensorEvaluationContext, pipeline: PipelineResource) -> dg.SensorResult:
    """Run what is missing."""
    chain = pipeline.pipeline()
    missing = {run.basis: run for run in missing_runs(context.instance, chain)}
    requests = [
        dg.RunRequest(run_key=run.basis, job_name=run.job, partition_key=run.partition_key, tags=run.tags)
        for run in missing.values()
    ]
    requests += [request(member) for member in new_releases(context.instance, chain)]
    return dg.SensorResult(
        run_requests=requests,
        dynamic_partitions_requests=_new_partitions(context.instance, chain),
        skip_reason=None if requests else "everything has run, is running, or has failed and waits for you",
    )


def new_releases(instance: dg.DagsterInstance, pipeline: Pipeline) -> list[Member]:
    """Releases with `every: crawl` that are to be frozen: of all crawls that were scored, once none is on its way."""
    status = {
        crawl: _status(instance, wanted(pipeline, group, crawl))
        for group in FLOW.groups
        if group.scope == "crawl"
        for crawl in pipeline.crawls()
    }
    if any(each is not dg.DagsterRunStatus.SUCCESS and each not in FAILED for each in status.values()):
        return []
    failed = [crawl for crawl, each in status.items() if each in FAILED]
    return to_freeze(pipeline, "crawl", this_month(), failed)


def missing_runs(instance: dg.DagsterInstance, pipeline: Pipeline) -> Iterator[Wanted]:
    """Runs that nobody asked for yet and whose inputs stand in the record."""
    for group in FLOW.groups:
        if group.scope == "crawl":
            for crawl in pipeline.crawls():
                run = wanted(pipeline, group, crawl)
                if _status(instance, run) is None:
                    yield run
    done_of: dict[str, set[Group]] = {}
    for release in in_order(pipeline, pipeline.releases()):
        done = done_of.setdefault(release, set())
        # What a release goes on from is done before: of one that is retired, all that there will be.
        given = pipeline.given(release)
        before = done_of.get(given, set(FLOW.groups)) if given is not None else set(FLOW.groups)
        for group in FLOW.groups:
            if FLOW.needed_by(group) <= done and group in before:
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
