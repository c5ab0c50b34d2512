"""The sensors: `discover` names what there is, `advance` runs what is missing. Knows no stage.

`AutomationCondition.eager` is not used: it never requests partitions that were there at its first tick, and a
release would not fire while any crawl of the record is missing.
"""

import dataclasses
import json
import logging
from collections.abc import Iterator

import dagster as dg
from dagster._core.storage.tags import RUN_KEY_TAG

from assets.chain import chain_job
from assets.freeze import freeze_job, refused, request, to_freeze
from assets.jobs import CRAWL_JOB
from assets.partitions import CRAWLS, RELEASES
from assets.plan import BASIS_TAG, Wanted, crawl_run, release_run
from datamask_pipeline.errors import ConfigurationError, InputError, StorageError
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.pipeline.order import wanted_releases
from datamask_pipeline.pipeline.rolling import Member, this_month
from datamask_pipeline.stages import score, select
from resources import PipelineResource

logger = logging.getLogger(__name__)

#: Of `advance`. A tick costs a tenth of a second, nearly all of it Dagster's. A release waits for two: its crawls' and, when
#: these are done, its own.
SECONDS_BETWEEN_TICKS = 5
#: Of `discover`: where it matters how soon a crawl is named, `advance` is on, which names what it sees.
SECONDS_BETWEEN_LOOKS = 30
#: Of a run of a job with partitions, by Dagster.
PARTITION_TAG = "dagster/partition"
#: The newest runs of a partition among which one that `advance` asked for is sought.
LOOKED_AT = 20
FAILED = {dg.DagsterRunStatus.FAILURE: "failed", dg.DagsterRunStatus.CANCELED: "was terminated"}


@dg.sensor(
    minimum_interval_seconds=SECONDS_BETWEEN_LOOKS,
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
    jobs=[CRAWL_JOB, chain_job, freeze_job],
    minimum_interval_seconds=SECONDS_BETWEEN_TICKS,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Runs what is missing and has its inputs: each crawl whose files are as at the last look, then each "
    "release from its pool to its report. "
    "A run whose settings and inputs were those of the last one is not asked for again; a failed one waits for you.",
)
def advance(context: dg.SensorEvaluationContext, pipeline: PipelineResource) -> dg.SensorResult:
    """Run what is missing; a crawl once its files are the same at two looks, as they may still be growing at the first."""
    chain = pipeline.pipeline()
    missing = {run.basis: run for run in missing_runs(context.instance, chain)}
    seen: list[str] = json.loads(context.cursor or "[]")
    fresh = [run for run in missing.values() if run.job == CRAWL_JOB.name and run.basis not in seen]
    requests = [
        dg.RunRequest(run_key=run.run_key, job_name=run.job, partition_key=run.partition_key, tags=run.tags)
        for run in missing.values()
        if run not in fresh
    ]
    to_be_frozen = new_releases(context.instance, chain)
    asked = {member.name: _standing_of_freezing(context.instance, member) for member in to_be_frozen}
    # One that goes on from another that is to be frozen is frozen after it.
    requests += [
        run
        for member, (status, run) in zip(to_be_frozen, asked.values(), strict=True)
        if status is None and member.given not in asked
    ]
    skip_reason = "everything has run or is running"
    failed = [
        f"{freeze_job.name} of {name} {FAILED[status]}"
        for name, (status, _) in asked.items()
        if status in FAILED
    ]
    failed += [] if requests else _failed(context.instance, chain)
    if failed and not requests:
        skip_reason = f"everything else has run or is running; waiting for you: {'; '.join(failed)}"
    if fresh:
        names = ", ".join(run.partition_key for run in fresh)
        skip_reason = f"files of {names} are new or changed: asked for if they are the same at the next look"
    return dg.SensorResult(
        run_requests=requests,
        dynamic_partitions_requests=_new_partitions(context.instance, chain),
        skip_reason=None if requests else skip_reason,
        cursor=json.dumps([run.basis for run in missing.values() if run.job == CRAWL_JOB.name]),
    )


def new_releases(instance: dg.DagsterInstance, pipeline: Pipeline) -> list[Member]:
    """Releases with `every: crawl` that are to be frozen: of all crawls that were scored, once none is on its way."""
    scored = set(pipeline.store.keys(score.STAGE))
    runs, unreadable = _crawl_runs(pipeline)
    status = {crawl: _standing(instance, run, crawl in scored)[0] for crawl, run in runs.items()}
    if any(each is not dg.DagsterRunStatus.SUCCESS and each not in FAILED for each in status.values()):
        return []
    failed = [*unreadable, *(crawl for crawl, each in status.items() if each in FAILED)]
    return to_freeze(pipeline, "crawl", this_month(), failed)


def missing_runs(instance: dg.DagsterInstance, pipeline: Pipeline) -> Iterator[Wanted]:
    """Runs that nobody asked for yet and whose inputs stand in the record."""
    made: set[str] = set()
    scored, masks = set(pipeline.store.keys(score.STAGE)), set(pipeline.store.keys(select.STAGE))
    runs, unreadable = _crawl_runs(pipeline)
    for crawl, error in unreadable.items():  # others are made all the same
        logger.warning("nothing is asked for of crawl %s: %s", crawl, error)
    for crawl, asked in runs.items():
        status, run = _standing(instance, asked, crawl in scored)
        if status is None:
            yield run
        if status is dg.DagsterRunStatus.SUCCESS:
            made.add(crawl)
    # What the source has no more is taken as it stands in the record.
    made |= scored - set(pipeline.crawls())
    waiting: set[str] = set()
    for release in wanted_releases(pipeline, new=False):
        try:
            crawls = pipeline.planned_crawls(release)
        except ConfigurationError as error:  # others are made all the same
            logger.warning("nothing is asked for of release %s: %s", release, error)
            waiting.add(release)
            continue
        # What it goes on from is made before: of a release that is retired, all that there will be.
        if pipeline.given(release) in waiting or not made.issuperset(crawls):
            waiting.add(release)
            continue
        # Others can go on from its masks, although its run failed later.
        has_masks = masks.issuperset(pipeline.keys("arm", release))
        status, run = _standing(instance, release_run(pipeline, release), has_masks)
        if status is None:
            yield run
        if status is not dg.DagsterRunStatus.SUCCESS and not (status in FAILED and has_masks):
            waiting.add(release)


def _failed(instance: dg.DagsterInstance, pipeline: Pipeline) -> Iterator[str]:
    """The newest runs that failed, crawls that cannot be read, the releases that wait for either, and those refused."""
    runs, unreadable = _crawl_runs(pipeline)
    status = {crawl: _status(instance, run) for crawl, run in runs.items()}
    lost = {
        crawl: f"{CRAWL_JOB.name} of {crawl} {FAILED[each]}"
        for crawl, each in status.items()
        if each in FAILED
    }
    lost |= {crawl: f"crawl {crawl} cannot be read: {error}" for crawl, error in unreadable.items()}
    yield from lost.values()
    for release in wanted_releases(pipeline, new=False):
        try:
            crawls = pipeline.planned_crawls(release)
        except ConfigurationError as error:
            yield f"release {release} is refused: {error}"
            continue
        if behind := [crawl for crawl in crawls if crawl in lost]:
            yield f"release {release} waits for {', '.join(behind)}"
        elif (ended := _status(instance, run := release_run(pipeline, release))) in FAILED:
            yield f"{run.job} of {release} {FAILED[ended]}"
    yield from refused(pipeline, this_month())


def _crawl_runs(pipeline: Pipeline) -> tuple[dict[str, Wanted], dict[str, InputError | StorageError]]:
    """The run of each crawl; of one whose files cannot be looked at, as where a link leads nowhere, why."""
    runs: dict[str, Wanted] = {}
    unreadable: dict[str, InputError | StorageError] = {}
    for crawl in pipeline.crawls():
        try:
            runs[crawl] = crawl_run(pipeline, crawl)
        except (InputError, StorageError) as error:
            unreadable[crawl] = error
    return runs, unreadable


def _standing(
    instance: dg.DagsterInstance, run: Wanted, stands: bool
) -> tuple[dg.DagsterRunStatus | None, Wanted]:
    """How the newest run of that basis stands, and the run; ``None``: it is to be asked for.

    One that went well is, too, where a run of other settings or inputs has ended since: the record has gone over to what
    that one made. So is one of which nothing stands in the record, as that is another one than it ran for, or was emptied.
    So is one that failed or was terminated, where somebody has run something of its partition by hand since, and that went
    well: what it lacked may stand there now.
    """
    newest = _newest(instance, run)
    status, after = None if newest is None else newest.status, ""
    if newest is not None and status is dg.DagsterRunStatus.SUCCESS:
        after = _ended_since(instance, run) if stands else newest.run_id
    elif status in FAILED:
        after = _mended_since(instance, run)
    return (None, dataclasses.replace(run, after=after)) if after else (status, run)


def _mended_since(instance: dg.DagsterInstance, run: Wanted) -> str:
    """The newest run of its partition that somebody launched since it ended so, if that went well; else nothing."""
    filters = dg.RunsFilter(tags={PARTITION_TAG: run.partition_key})
    for record in instance.get_run_records(filters=filters, limit=LOOKED_AT):
        found = record.dagster_run
        if found.tags.get(BASIS_TAG) == run.basis:
            return ""
        if BASIS_TAG not in found.tags and found.is_success:
            return found.run_id
    return ""


def _ended_since(instance: dg.DagsterInstance, run: Wanted) -> str:
    """The newest run of its job and partition, if that is of another basis and has ended; else nothing."""
    filters = dg.RunsFilter(job_name=run.job, tags={PARTITION_TAG: run.partition_key})
    for record in instance.get_run_records(filters=filters, limit=LOOKED_AT):
        found = record.dagster_run
        if basis := found.tags.get(BASIS_TAG):  # others somebody launched
            return found.run_id if basis != run.basis and found.is_finished else ""
    return ""


def _status(instance: dg.DagsterInstance, run: Wanted) -> dg.DagsterRunStatus | None:
    """How the newest run of that basis stands; ``None`` if there is none."""
    newest = _newest(instance, run)
    return None if newest is None else newest.status


def _newest(instance: dg.DagsterInstance, run: Wanted) -> dg.DagsterRun | None:
    """The newest run of that basis."""
    found = instance.get_run_records(filters=dg.RunsFilter(tags={BASIS_TAG: run.basis}), limit=1)
    return found[0].dagster_run if found else None


def _standing_of_freezing(
    instance: dg.DagsterInstance, member: Member
) -> tuple[dg.DagsterRunStatus | None, dg.RunRequest]:
    """How the newest run that was asked for to freeze a release stands, and the request; ``None``: it is to be asked for.

    One that went well is, too, as the release is not frozen: the record is another one than it ran for, or was emptied.
    """
    asked = request(member)
    while True:
        filters = dg.RunsFilter(job_name=freeze_job.name, tags={RUN_KEY_TAG: asked.run_key or ""})
        found = instance.get_run_records(filters=filters, limit=1)
        if not found:
            return None, asked
        if not (run := found[0].dagster_run).is_success:
            return run.status, asked
        asked = request(member, after=run.run_id)


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
