"""The sensors name and run what is missing, and nothing twice; the schedule freezes a release."""

import datetime
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from tiny_chain import write_crawl, write_tiny_config

from assets.jobs import JOBS
from assets.plan import Wanted, runs, wanted
from assets.schedules import monthly_release
from assets.sensors import advance, discover, missing_runs
from datamask_pipeline.definitions import build_defs
from datamask_pipeline.pipeline import FLOW, Pipeline, load_config
from datamask_pipeline.pipeline.flow import CRAWLS
from resources import PipelineResource


@pytest.fixture
def resource(tmp_path: Path) -> PipelineResource:
    return PipelineResource(config=str(write_tiny_config(tmp_path)))


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def tick(
    sensor: dg.SensorDefinition, resource: PipelineResource, instance: dg.DagsterInstance
) -> dg.SensorResult:
    """Evaluate a sensor and do what it asks of the instance, short of launching runs."""
    context = dg.build_sensor_context(instance=instance)
    result = sensor(context, pipeline=resource)
    assert isinstance(result, dg.SensorResult)
    for request in result.dynamic_partitions_requests or []:
        instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
    return result


def finish(instance: dg.DagsterInstance, run: dg.RunRequest, status: dg.DagsterRunStatus) -> None:
    """Leave a run of that request in the instance, as the launcher would."""
    instance.add_run(
        dg.DagsterRun(
            job_name=str(run.job_name), run_id=str(uuid.uuid4()), tags=dict(run.tags), status=status
        )
    )


def test_discover_adds_crawls_and_releases_once(
    resource: PipelineResource, instance: dg.DagsterInstance
) -> None:
    assert not tick(discover, resource, instance).run_requests
    assert instance.get_dynamic_partitions("crawls") == ["tiny-2024-10", "tiny-2024-18"]
    assert instance.get_dynamic_partitions("releases") == ["first"]
    again = tick(discover, resource, instance)
    assert not again.dynamic_partitions_requests
    assert again.skip_reason


def test_discover_finds_a_crawl_that_arrives(
    resource: PipelineResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    tick(discover, resource, instance)
    write_crawl(tmp_path / "crawls", "tiny-2024-22", 3, seed=5)
    tick(discover, resource, instance)
    assert "tiny-2024-22" in instance.get_dynamic_partitions("crawls")


def test_advance_asks_for_every_crawl_first_and_only_once(
    resource: PipelineResource, instance: dg.DagsterInstance
) -> None:
    first = tick(advance, resource, instance)
    assert {(run.job_name, run.partition_key) for run in first.run_requests} == {
        ("crawl_job", "tiny-2024-10"),
        ("crawl_job", "tiny-2024-18"),
    }
    keys = [run.run_key for run in first.run_requests]
    assert [run.run_key for run in tick(advance, resource, instance).run_requests] == keys
    for run in first.run_requests:
        finish(instance, run, dg.DagsterRunStatus.STARTED)
    waiting = tick(advance, resource, instance)
    assert not waiting.run_requests
    assert waiting.skip_reason


def test_advance_goes_on_when_all_crawls_succeeded(
    resource: PipelineResource, instance: dg.DagsterInstance
) -> None:
    one, other = tick(advance, resource, instance).run_requests
    finish(instance, one, dg.DagsterRunStatus.SUCCESS)
    finish(instance, other, dg.DagsterRunStatus.FAILURE)
    assert not tick(advance, resource, instance).run_requests
    finish(instance, other, dg.DagsterRunStatus.SUCCESS)  # someone repaired it and ran it again
    (run,) = tick(advance, resource, instance).run_requests
    assert (run.job_name, run.partition_key) == ("release_job", "first")


def test_what_the_demo_ran_is_not_asked_for_again(dagster_run) -> None:
    assert list(missing_runs(dagster_run.instance, dagster_run.pipeline)) == []


def test_a_changed_setting_asks_for_the_arm_again_and_not_for_its_crawls(dagster_run) -> None:
    settings = {**dagster_run.settings, "arms.datamask": {"policy": "datamask", "lamb": 0.75}}
    changed = Pipeline(load_config(str(dagster_run.config_file), settings))
    missing = list(missing_runs(dagster_run.instance, changed))
    assert [(run.job, str(run.partition_key)) for run in missing] == [("arm_job", "first|datamask")]


def all_runs(pipeline: Pipeline) -> list[Wanted]:
    return [run for group in FLOW.groups for run in runs(pipeline, group, "first")]


def test_bases_are_deterministic_and_follow_their_inputs(dagster_run) -> None:
    assert all_runs(dagster_run.pipeline) == all_runs(dagster_run.pipeline)
    bases = [run.basis for run in all_runs(dagster_run.pipeline)]
    assert len(set(bases)) == len(bases)
    crawls = Pipeline(
        load_config(str(dagster_run.config_file), {**dagster_run.settings, "ingest.min_chars": 9})
    )
    assert wanted(crawls, CRAWLS, "tiny-2024-10") != wanted(dagster_run.pipeline, CRAWLS, "tiny-2024-10")


def test_every_job_is_reached_by_the_plan(dagster_run) -> None:
    reached = [run.job for run in all_runs(dagster_run.pipeline)]
    assert list(dict.fromkeys(reached)) == [job.name for job in JOBS]


def test_the_schedule_freezes_what_is_scored_and_new(dagster_run, tmp_path: Path) -> None:
    shutil.copytree(dagster_run.pipeline.store.root, tmp_path / "record")
    settings = {"store": str(tmp_path / "record")}
    resource = PipelineResource(config=str(dagster_run.config_file), settings=settings)
    month = datetime.datetime(2026, 3, 1, 3, tzinfo=datetime.UTC)

    def fire(instance: dg.DagsterInstance) -> dg.RunRequest | dg.SkipReason:
        context = dg.build_schedule_context(instance=instance, scheduled_execution_time=month)
        return monthly_release(context, pipeline=resource)

    with dg.instance_for_test() as instance:
        skipped = fire(instance)
        assert isinstance(skipped, dg.SkipReason)
        assert "first" in str(skipped.skip_message)

        shutil.copytree(tmp_path / "record/score/tiny-2024-18", tmp_path / "record/score/tiny-2024-22")
        request = fire(instance)
        assert isinstance(request, dg.RunRequest)
        assert request.partition_key == "monthly-2026-03"
        frozen = resource.pipeline().release_crawls("monthly-2026-03")
        assert frozen == ["tiny-2024-10", "tiny-2024-18", "tiny-2024-22"]
        assert instance.get_dynamic_partitions("releases") == ["monthly-2026-03"]
        assert fire(instance) == request


def test_only_discover_runs_unless_it_is_switched_on(tiny_defs: dg.Definitions) -> None:
    repository = tiny_defs.get_repository_def()
    running = {s.name for s in repository.sensor_defs if s.default_status is dg.DefaultSensorStatus.RUNNING}
    assert running == {"discover"}
    (schedule,) = repository.schedule_defs
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED


def test_a_resource_can_be_swapped(tiny_config_file: Path, tmp_path: Path) -> None:
    elsewhere = PipelineResource(config=str(tiny_config_file), store=str(tmp_path / "elsewhere"))
    defs = build_defs(config=str(tiny_config_file), resource_overrides={"pipeline": elsewhere})
    assert defs.resources is not None
    assert defs.resources["pipeline"].pipeline().store.root == str(tmp_path / "elsewhere")
