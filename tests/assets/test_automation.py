"""The sensors name and run what is missing, and nothing twice; the schedule freezes a release."""

import datetime
import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.tags import RUN_KEY_TAG
from tiny_chain import write_crawl, write_tiny_config
from typer.testing import CliRunner

from assets.freeze import freeze_job, release_of
from assets.plan import Wanted, crawl_run, release_run
from assets.schedules import monthly_release
from assets.sensors import advance, discover, missing_runs, new_releases
from datamask_pipeline.cli.app import app
from datamask_pipeline.definitions import build_defs
from datamask_pipeline.errors import StorageError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.pipeline.rolling import Member
from datamask_pipeline.sources.local import LocalSource
from datamask_pipeline.storage import Ref, Store, require
from datamask_pipeline.storage.releases import freeze
from resources import PipelineResource

#: Prints what `all_runs` gives.
ALL_RUNS = """
import json, sys
from assets.plan import crawl_run, release_run
from datamask_pipeline.pipeline import Pipeline, load_config
pipeline = Pipeline(load_config(sys.argv[1], json.loads(sys.argv[2])))
for run in [*(crawl_run(pipeline, crawl) for crawl in pipeline.crawls()), release_run(pipeline, "first")]:
    print(run)
"""


@pytest.fixture
def resource(tmp_path: Path) -> PipelineResource:
    return PipelineResource(config=str(write_tiny_config(tmp_path)))


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def look(
    sensor: dg.SensorDefinition,
    resource: PipelineResource,
    instance: dg.DagsterInstance,
    cursor: str | None = None,
) -> dg.SensorResult:
    """Evaluate a sensor once."""
    with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
        result = sensor(context, pipeline=resource)
    assert isinstance(result, dg.SensorResult)
    return result


def tick(
    sensor: dg.SensorDefinition, resource: PipelineResource, instance: dg.DagsterInstance
) -> dg.SensorResult:
    """Look twice by a sensor, and do what it then asks of the instance, short of launching runs."""
    result = look(sensor, resource, instance)
    result = look(sensor, resource, instance, result.cursor)
    for request in result.dynamic_partitions_requests or []:
        instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
    return result


def finish(instance: dg.DagsterInstance, run: dg.RunRequest, status: dg.DagsterRunStatus) -> None:
    """Leave a run of that request in the instance, as the launcher would."""
    tags = {**run.tags, "dagster/partition": str(run.partition_key)}
    instance.add_run(
        dg.DagsterRun(job_name=str(run.job_name), run_id=str(uuid.uuid4()), tags=tags, status=status)
    )


def succeed(instance: dg.DagsterInstance, run: dg.RunRequest, pipeline: Pipeline) -> None:
    """Leave a run of that request that went well, and in the record what `advance` looks for of it."""
    finish(instance, run, dg.DagsterRunStatus.SUCCESS)
    of_release = run.job_name == "chain_job"
    keys = pipeline.keys("arm", str(run.partition_key)) if of_release else [str(run.partition_key)]
    for key in keys:
        stage = "select" if of_release else "score"
        pipeline.store.point_to(Ref(stage, key, "f" * 64, "d" * 64, f"{stage}/{key}/f", 3))


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


def test_advance_asks_for_a_release_in_one_run_when_all_its_crawls_succeeded(
    resource: PipelineResource, instance: dg.DagsterInstance
) -> None:
    one, other = tick(advance, resource, instance).run_requests
    succeed(instance, one, resource.pipeline())
    finish(instance, other, dg.DagsterRunStatus.FAILURE)
    waits = tick(advance, resource, instance)
    assert not waits.run_requests
    assert waits.skip_reason.skip_message.endswith(
        f"waiting for you: crawl_job of {other.partition_key} failed; release first waits for {other.partition_key}"
    )
    succeed(instance, other, resource.pipeline())  # someone repaired it and ran it again
    (run,) = tick(advance, resource, instance).run_requests
    assert (run.job_name, run.partition_key) == ("chain_job", "first")
    finish(instance, run, dg.DagsterRunStatus.FAILURE)
    waits = tick(advance, resource, instance)
    assert not waits.run_requests, "a failed run waits for somebody"
    assert waits.skip_reason.skip_message.endswith("waiting for you: chain_job of first failed")


@pytest.mark.parametrize(
    ("ended", "said"),
    [(dg.DagsterRunStatus.FAILURE, "failed"), (dg.DagsterRunStatus.CANCELED, "was terminated")],
)
def test_what_was_run_by_hand_since_it_failed_is_seen(
    resource: PipelineResource, instance: dg.DagsterInstance, ended: dg.DagsterRunStatus, said: str
) -> None:
    """Whatever it was: the run is asked for once more, which finds what stands in the record."""
    one, other = tick(advance, resource, instance).run_requests
    succeed(instance, one, resource.pipeline())
    finish(instance, other, ended)
    name = other.partition_key
    by_hand = dg.RunRequest(job_name="__ASSET_JOB", partition_key=name)
    finish(instance, by_hand, ended)
    waits = tick(advance, resource, instance).skip_reason.skip_message
    assert f"waiting for you: crawl_job of {name} {said}; release first waits for {name}" in waits
    finish(instance, by_hand, dg.DagsterRunStatus.SUCCESS)
    (again,) = tick(advance, resource, instance).run_requests
    assert (again.job_name, again.partition_key) == ("crawl_job", name)
    assert again.run_key != other.run_key
    assert [run.run_key for run in tick(advance, resource, instance).run_requests] == [again.run_key]
    finish(instance, again, ended)
    assert not tick(advance, resource, instance).run_requests, "asked for once"
    finish(instance, by_hand, dg.DagsterRunStatus.SUCCESS)
    (again,) = tick(advance, resource, instance).run_requests
    succeed(instance, again, resource.pipeline())
    (run,) = tick(advance, resource, instance).run_requests
    assert (run.job_name, run.partition_key) == ("chain_job", "first")


def test_what_the_demo_ran_is_not_asked_for_again(dagster_run) -> None:
    assert list(missing_runs(dagster_run.instance, dagster_run.pipeline)) == []


def test_a_changed_setting_of_an_arm_asks_for_its_release_again_and_not_for_its_crawls(dagster_run) -> None:
    settings = {**dagster_run.settings, "arms.datamask": {"policy": "datamask", "lamb": 0.75}}
    changed = Pipeline(load_config(str(dagster_run.config_file), settings))
    missing = list(missing_runs(dagster_run.instance, changed))
    assert [(run.job, str(run.partition_key)) for run in missing] == [("chain_job", "first")]


def all_runs(pipeline: Pipeline) -> list[Wanted]:
    return [*(crawl_run(pipeline, crawl) for crawl in pipeline.crawls()), release_run(pipeline, "first")]


def test_bases_are_deterministic_and_follow_their_inputs(dagster_run) -> None:
    """In a process in which strings have other hashes, too."""
    arguments = [str(dagster_run.config_file), json.dumps(dagster_run.settings)]
    done = subprocess.run(
        [sys.executable, "-c", ALL_RUNS, *arguments],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(run) for run in all_runs(dagster_run.pipeline)]
    bases = [run.basis for run in all_runs(dagster_run.pipeline)]
    assert len(set(bases)) == len(bases)
    settings = {**dagster_run.settings, "ingest.min_chars": 9}
    crawls = Pipeline(load_config(str(dagster_run.config_file), settings))
    assert crawl_run(crawls, "tiny-2024-10") != crawl_run(dagster_run.pipeline, "tiny-2024-10")


def test_the_schedule_freezes_what_is_scored_and_new(dagster_run, tmp_path: Path) -> None:
    shutil.copytree(dagster_run.pipeline.store.root, tmp_path / "record")
    shutil.copytree(dagster_run.pipeline.config.source.options["root"], tmp_path / "crawls")
    settings = {
        "store": str(tmp_path / "record"),
        "source.options.root": str(tmp_path / "crawls"),
        "releases": {"web": {"every": "month"}},
    }
    resource = PipelineResource(config=str(dagster_run.config_file), settings=settings)

    def fire(instance: dg.DagsterInstance, month: int) -> list[dg.RunRequest] | dg.SkipReason:
        time = datetime.datetime(2026, month, 1, 3, tzinfo=datetime.UTC)
        with dg.build_schedule_context(instance=instance, scheduled_execution_time=time) as context:
            return monthly_release(context, pipeline=resource)

    defs = build_defs(config=str(dagster_run.config_file), settings=settings)
    with dg.instance_for_test() as instance:
        files = files_of(tmp_path / "record")
        for month, crawls in ((3, ["tiny-2024-10", "tiny-2024-18"]), (5, ["tiny-2024-22"])):
            requests = fire(instance, month)
            for _ in range(10):
                assert fire(instance, month) == requests
            assert files_of(tmp_path / "record") == files
            assert isinstance(requests, list)
            (request,) = requests
            job = defs.resolve_job_def("freeze_job")
            assert job.execute_in_process(instance=instance, run_config=request.run_config).success
            assert resource.pipeline().release_crawls(f"web-2026-0{month}")[-len(crawls) :] == crawls
            assert f"web-2026-0{month}" in instance.get_dynamic_partitions("releases")
            assert isinstance(fire(instance, month + 1), dg.SkipReason), "no crawl is new"
            shutil.copytree(tmp_path / "crawls/tiny-2024-18", tmp_path / f"crawls/tiny-2024-2{month - 1}")
            assert isinstance(fire(instance, month + 1), dg.SkipReason), "it is not scored"
            shutil.copytree(
                tmp_path / "record/score/tiny-2024-18", tmp_path / f"record/score/tiny-2024-2{month - 1}"
            )
            files = files_of(tmp_path / "record")


@pytest.mark.slow
def test_storage_that_fails_once_keeps_no_release_from_being_frozen(
    resource: PipelineResource, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries, exclusive = list[str](), Store.exclusive

    def broken_once(store: Store, stage: str, key: str, **more: bool) -> AbstractContextManager[bool]:
        tries.append(key)
        if len(tries) == 1:
            raise StorageError("the storage did not answer")
        return exclusive(store, stage, key, **more)

    monkeypatch.setattr(Store, "exclusive", broken_once)
    ended = freeze_job.execute_in_process(
        instance=instance,
        run_config={"ops": {"freeze_release": {"config": {"release": "first"}}}},
        resources={"pipeline": resource},
        raise_on_error=False,
    )
    assert ended.success
    assert instance.get_dynamic_partitions("releases") == ["first"]


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and date of every file."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("sensor", [discover, advance])
def test_previewing_a_sensor_changes_no_file_of_the_record(
    sensor: dg.SensorDefinition, dagster_run, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """Not even of a configured release that nobody asked for yet."""
    shutil.copytree(dagster_run.pipeline.store.root, tmp_path / "record")
    settings = {"store": str(tmp_path / "record"), "releases": {"fresh": {}}}
    resource = PipelineResource(config=str(dagster_run.config_file), settings=settings)
    files = files_of(tmp_path / "record")
    cursor = None
    for _ in range(10):
        result = look(sensor, resource, instance, cursor)
        cursor = result.cursor
        assert result.dynamic_partitions_requests
    assert files_of(tmp_path / "record") == files
    if sensor is advance:
        assert result.run_requests


def test_a_crawl_whose_files_changed_is_asked_for_again(
    resource: PipelineResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    for run in tick(advance, resource, instance).run_requests:
        finish(instance, run, dg.DagsterRunStatus.STARTED)
    assert not tick(advance, resource, instance).run_requests
    crawl = tmp_path / "crawls" / "tiny-2024-18"
    shutil.copy(crawl / "000.jsonl", crawl / "002.jsonl")
    (added,) = tick(advance, resource, instance).run_requests
    assert added.partition_key == "tiny-2024-18"
    finish(instance, added, dg.DagsterRunStatus.STARTED)
    (crawl / "002.jsonl").write_text("")
    (repaired,) = tick(advance, resource, instance).run_requests
    assert repaired.partition_key == "tiny-2024-18"


@pytest.mark.slow
def test_settings_that_come_back_are_asked_for_again(
    resource: PipelineResource, instance: dg.DagsterInstance
) -> None:
    """The record has gone over to what was made with others meanwhile, a withdrawal perhaps among what is missing."""
    other = PipelineResource(config=resource.config, settings={"ingest.min_chars": 9})
    keys = []
    for turn in (resource, other, resource, other):
        asked = tick(advance, turn, instance).run_requests
        assert [run.job_name for run in asked] == ["crawl_job", "crawl_job"]
        keys += [run.run_key for run in asked]
        for run in asked:
            finish(instance, run, dg.DagsterRunStatus.STARTED)
        assert not tick(advance, turn, instance).run_requests
        for run in asked:
            succeed(instance, run, turn.pipeline())
        (chain,) = tick(advance, turn, instance).run_requests
        assert chain.job_name == "chain_job"
    assert len(set(keys)) == len(keys), "Dagster asks for a key once"


def test_a_crawl_whose_files_still_grow_is_not_asked_for(
    resource: PipelineResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    growing = tmp_path / "crawls" / "tiny-2024-18" / "000.jsonl"
    seen = look(advance, resource, instance)
    assert not seen.run_requests
    assert "files of tiny-2024-10, tiny-2024-18 are new or changed" in str(seen.skip_reason)
    growing.write_text(growing.read_text() * 2)
    seen = look(advance, resource, instance, seen.cursor)
    assert [run.partition_key for run in seen.run_requests] == ["tiny-2024-10"]
    growing.write_text(growing.read_text() * 2)
    finish(instance, seen.run_requests[0], dg.DagsterRunStatus.STARTED)
    seen = look(advance, resource, instance, seen.cursor)
    assert not seen.run_requests
    seen = look(advance, resource, instance, seen.cursor)
    assert [run.partition_key for run in seen.run_requests] == ["tiny-2024-18"]


def test_a_crawl_that_cannot_be_read_stops_no_other(
    resource: PipelineResource, instance: dg.DagsterInstance, tmp_path: Path, caplog
) -> None:
    (tmp_path / "crawls" / "tiny-2024-18" / "002.jsonl").symlink_to("nowhere.jsonl")
    releases = {"first": {}, "alone": {"crawls": ["tiny-2024-10"]}, "web": {"every": "crawl"}}
    turn = PipelineResource(config=resource.config, settings={"releases": releases})
    (crawl,) = tick(advance, turn, instance).run_requests
    assert crawl.partition_key == "tiny-2024-10"
    assert "nothing is asked for of crawl tiny-2024-18: " in caplog.text
    succeed(instance, crawl, turn.pipeline())
    chain, freezing = tick(advance, turn, instance).run_requests
    assert chain.partition_key == "alone"
    values = freezing.run_config["ops"]["freeze_release"]["config"]
    assert values["crawls"] == ["tiny-2024-10"]
    succeed(instance, chain, turn.pipeline())
    turn.pipeline().freeze(Member(values["release"], "web", ("tiny-2024-10",), None))
    (chain,) = tick(advance, turn, instance).run_requests
    succeed(instance, chain, turn.pipeline())
    told = str(tick(advance, turn, instance).skip_reason)
    assert "waiting for you: crawl tiny-2024-18 cannot be read: " in told
    assert "/crawls/tiny-2024-18/002.jsonl" in told
    assert "; release first waits for tiny-2024-18" in told


def test_a_crawl_whose_storage_does_not_answer_stops_no_other(
    resource: PipelineResource, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    states = LocalSource.states

    def silent(self: LocalSource, crawl: str) -> list[tuple[str, str]]:
        if crawl == "tiny-2024-18":
            raise StorageError("s3://crawls/tiny-2024-18/000.jsonl cannot be reached")
        return states(self, crawl)

    monkeypatch.setattr(LocalSource, "states", silent)
    (crawl,) = tick(advance, resource, instance).run_requests
    assert crawl.partition_key == "tiny-2024-10"
    assert "nothing is asked for of crawl tiny-2024-18: s3://crawls/" in caplog.text


def test_a_release_that_goes_on_waits_for_the_one_before(
    dagster_run, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """Until that one's run has ended, well or with all masks that it goes on from."""
    shutil.copytree(dagster_run.pipeline.store.root, tmp_path / "record")
    releases = {"before": {"crawls": ["tiny-2024-10"]}, "after": {"given": "before"}}
    settings = {"store": str(tmp_path / "record"), "releases": releases}
    chain = Pipeline(load_config(str(dagster_run.config_file), settings))
    for run in (crawl_run(chain, crawl) for crawl in chain.crawls()):
        finish(instance, request_of(run), dg.DagsterRunStatus.SUCCESS)

    def asked() -> list[str]:
        return [str(run.partition_key) for run in missing_runs(instance, chain)]

    assert asked() == ["before"]
    run = release_run(chain, "before")
    finish(instance, request_of(run), dg.DagsterRunStatus.STARTED)
    assert asked() == []
    finish(instance, request_of(run), dg.DagsterRunStatus.FAILURE)
    assert asked() == []
    for _, _, call in chain.steps("before", "select"):
        call()
    finish(instance, request_of(release_run(chain, "before")), dg.DagsterRunStatus.STARTED)
    assert asked() == []
    finish(instance, request_of(release_run(chain, "before")), dg.DagsterRunStatus.FAILURE)
    assert asked() == ["after"], "what failed came after the masks"
    finish(instance, request_of(release_run(chain, "before")), dg.DagsterRunStatus.SUCCESS)
    assert asked() == ["after"]


@pytest.mark.slow
def test_a_crawl_that_the_source_has_no_more_holds_nothing_up(
    dagster_run, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    shutil.copytree(dagster_run.pipeline.config.source.options["root"], tmp_path / "crawls")
    shutil.rmtree(tmp_path / "crawls" / "tiny-2024-10")
    settings = {**dagster_run.settings, "source.options.root": str(tmp_path / "crawls")}
    chain = Pipeline(load_config(str(dagster_run.config_file), settings))
    (crawl,) = missing_runs(instance, chain)
    finish(instance, request_of(crawl), dg.DagsterRunStatus.SUCCESS)
    assert [run.job for run in missing_runs(instance, chain)] == ["chain_job"]
    run = dagster_run.job("chain_job", "first", **settings)
    assert run.success, "it is taken as it stands in the record"


def test_a_release_that_names_no_crawl_of_the_source_stops_no_other(
    dagster_run, instance: dg.DagsterInstance, tmp_path: Path, caplog
) -> None:
    releases = {"first": {}, "third": {"crawls": ["gone"]}, "fourth": {"crawls": ["tiny-2024-10"]}}
    settings = {**dagster_run.settings, "releases": releases}
    chain = Pipeline(load_config(str(dagster_run.config_file), settings))
    for run in missing_runs(instance, chain):
        finish(instance, request_of(run), dg.DagsterRunStatus.SUCCESS)
    assert "fourth" in [run.partition_key for run in missing_runs(instance, chain)]
    assert (
        "nothing is asked for of release third: releases.third.crawls: unknown crawl of release"
        in caplog.text
    )


def test_a_release_that_was_frozen_with_another_given_stops_no_other(
    dagster_run, instance: dg.DagsterInstance, caplog
) -> None:
    crawls = ["tiny-2024-10"]
    releases = {
        "first": {},
        "ninth": {"given": "first", "crawls": ["tiny-2024-18"]},
        "tenth": {"crawls": crawls},
    }
    chain = Pipeline(
        load_config(str(dagster_run.config_file), {**dagster_run.settings, "releases": releases})
    )
    freeze(chain.store, "ninth", ["tiny-2024-10", "tiny-2024-18"])
    for run in missing_runs(instance, chain):
        finish(instance, request_of(run), dg.DagsterRunStatus.SUCCESS)
    assert "tenth" in [run.partition_key for run in missing_runs(instance, chain)]
    assert (
        "nothing is asked for of release ninth: releases.ninth.given: release 'ninth' was frozen"
        in caplog.text
    )


def test_a_tick_without_runs_names_the_releases_that_are_refused(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    """It said that everything has run; what the log tells stands on no page of Dagster."""
    releases = {
        "first": {},
        "third": {"crawls": ["gone"]},
        "web": {"every": "crawl", "given": "third"},
        "whole": {"every": "month", "given": "third"},
    }
    resource = PipelineResource(config=str(write_tiny_config(tmp_path)), settings={"releases": releases})
    for _ in range(2):
        for run in tick(advance, resource, instance).run_requests:
            succeed(instance, run, resource.pipeline())
    result = tick(advance, resource, instance)
    assert not result.run_requests
    why = "is refused: releases.third.crawls: unknown crawl of release 'third' 'gone'"
    for name in ("third", "web", "whole"):
        assert f"release {name} {why}" in result.skip_reason.skip_message
    time = datetime.datetime(2026, 3, 1, 3, tzinfo=datetime.UTC)
    with dg.build_schedule_context(instance=instance, scheduled_execution_time=time) as context:
        month = monthly_release(context, pipeline=resource)
    assert f"release whole {why}" in month.skip_message


def test_a_release_that_goes_on_from_one_whose_crawl_is_gone_stops_no_other(
    dagster_run, instance: dg.DagsterInstance, caplog
) -> None:
    releases = {
        "third": {"crawls": ["gone"]},
        "fourth": {"given": "third"},
        "fifth": {"every": "crawl", "given": "third"},
        "sixth": {"every": "crawl"},
        "seventh": {"crawls": ["tiny-2024-10"]},
    }
    chain = Pipeline(
        load_config(str(dagster_run.config_file), {**dagster_run.settings, "releases": releases})
    )
    for run in missing_runs(instance, chain):
        finish(instance, request_of(run), dg.DagsterRunStatus.SUCCESS)
    assert "seventh" in [run.partition_key for run in missing_runs(instance, chain)]
    assert [member.rolls for member in new_releases(instance, chain)] == ["sixth"]
    why = "releases.third.crawls: unknown crawl of release 'third' 'gone'"
    assert f"nothing is asked for of release fourth: {why}" in caplog.text
    assert f"nothing is made by release fifth: {why}" in caplog.text


def test_a_rolling_release_makes_one_of_all_crawls_and_then_one_with_each_that_arrives(
    resource: PipelineResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    releases = {"web": {"every": "crawl", "given": "previous"}}
    rolling = PipelineResource(config=resource.config, settings={"releases": releases})
    pipeline = rolling.pipeline()

    def asked(status: dg.DagsterRunStatus | None = None) -> list[dict[str, object]]:
        """What is to be frozen, once the crawls that are asked for have ended in some way."""
        frozen = []
        for run in tick(advance, rolling, instance).run_requests:
            if run.job_name == "freeze_job":
                frozen.append(run.run_config["ops"]["freeze_release"]["config"])
            elif run.job_name == "crawl_job" and status is dg.DagsterRunStatus.SUCCESS:
                succeed(instance, run, pipeline)
            elif run.job_name == "crawl_job" and status is not None:
                finish(instance, run, status)
        return frozen

    def freeze(values: dict[str, object]) -> None:
        defs = build_defs(config=resource.config, settings={"releases": releases})
        job = defs.resolve_job_def("freeze_job")
        done = job.execute_in_process(
            instance=instance, run_config={"ops": {"freeze_release": {"config": values}}}
        )
        assert done.success

    assert asked(dg.DagsterRunStatus.SUCCESS) == []
    (first,) = asked()
    assert (first["release"], first["given"]) == ("web-tiny-2024-18", None)
    assert first["crawls"] == ["tiny-2024-10", "tiny-2024-18"]
    files = files_of(tmp_path / "record")
    assert all(asked() == [first] for _ in range(10))
    assert files_of(tmp_path / "record") == files
    freeze(first)
    assert asked() == []
    for name in ("tiny-2024-19", "tiny-2024-22"):
        write_crawl(tmp_path / "crawls", name, 3, seed=5)
    assert asked() == []
    assert asked(dg.DagsterRunStatus.SUCCESS) == []
    (one,) = asked()
    assert (one["release"], one["given"]) == ("web-tiny-2024-19", "web-tiny-2024-18")
    key = dg.RunRequest(job_name="freeze_job", tags={RUN_KEY_TAG: "freeze web-tiny-2024-19"})
    finish(instance, key, dg.DagsterRunStatus.STARTED)
    assert asked() == []
    finish(instance, key, dg.DagsterRunStatus.FAILURE)
    assert asked() == []
    for run in tick(advance, rolling, instance).run_requests:
        succeed(instance, run, pipeline)
    told = tick(advance, rolling, instance)
    assert not told.run_requests
    assert "waiting for you: freeze_job of web-tiny-2024-19 failed" in str(told.skip_reason)
    freeze(one)
    (two,) = asked()
    assert (two["release"], two["given"]) == ("web-tiny-2024-22", "web-tiny-2024-19"), "once it is frozen"
    assert two["crawls"] == [*first["crawls"], "tiny-2024-19", "tiny-2024-22"]
    freeze(two)
    write_crawl(tmp_path / "crawls", "tiny-2024-20", 3, seed=6)
    assert asked(dg.DagsterRunStatus.FAILURE) == []
    write_crawl(tmp_path / "crawls", "tiny-2024-26", 3, seed=7)
    assert asked(dg.DagsterRunStatus.SUCCESS) == []
    (later,) = asked()
    assert later["release"] == "web-tiny-2024-26", "a crawl that failed holds no other up"
    assert "tiny-2024-20" not in later["crawls"]
    assert pipeline.given("web-tiny-2024-22") == "web-tiny-2024-19"


@pytest.mark.slow
def test_in_a_record_that_is_another_or_was_emptied_all_is_asked_for_again(
    resource: PipelineResource, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    """By keys of their own, as Dagster asks for one once."""
    asked_for: set[str] = set()

    def ask(turn: PipelineResource) -> list[dg.RunRequest]:
        """What is asked for, none of it before."""
        found = [*(tick(advance, turn, instance).run_requests or ())]
        keys = {str(run.run_key) for run in found}
        assert len(keys) == len(found)
        assert keys.isdisjoint(asked_for)
        asked_for.update(keys)
        return found

    releases = {"fixed": {"crawls": ["tiny-2024-10"]}, "web": {"every": "crawl"}}
    for record in ("one", "other", "other", "one"):
        shutil.rmtree(tmp_path / record, ignore_errors=True)
        settings = {"releases": releases, "store": str(tmp_path / record)}
        turn = PipelineResource(config=resource.config, settings=settings)
        crawls = ask(turn)
        assert [run.partition_key for run in crawls] == ["tiny-2024-10", "tiny-2024-18"]
        for run in crawls:
            succeed(instance, run, turn.pipeline())
        chain, freezing = ask(turn)
        assert (chain.job_name, chain.partition_key) == ("chain_job", "fixed")
        succeed(instance, chain, turn.pipeline())
        job = build_defs(config=resource.config, settings=settings).resolve_job_def("freeze_job")
        tags = {RUN_KEY_TAG: str(freezing.run_key)}
        assert job.execute_in_process(instance=instance, run_config=freezing.run_config, tags=tags).success
        assert release_of(str(freezing.run_key)) == "web-tiny-2024-18"
        (chain,) = ask(turn)
        assert (chain.job_name, chain.partition_key) == ("chain_job", "web-tiny-2024-18")
        succeed(instance, chain, turn.pipeline())
        assert ask(turn) == []


def test_the_subset_of_a_rolling_release_becomes_overdue(tiny_config_file: Path) -> None:
    releases = {"web": {"every": "month", "max_age_days": 40}}
    defs = build_defs(config=str(tiny_config_file), settings={"releases": releases})
    policies = {spec.key.to_user_string(): spec.freshness_policy for spec in defs.resolve_all_asset_specs()}
    assert policies.pop("fineweb_mask") == dg.FreshnessPolicy.time_window(
        fail_window=datetime.timedelta(days=40), warn_window=datetime.timedelta(days=32)
    )
    assert set(policies.values()) == {None}


def request_of(run: Wanted) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=run.run_key, job_name=run.job, partition_key=run.partition_key, tags=run.tags
    )


def test_of_a_retired_release_nothing_is_asked_for(
    dagster_run, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    shutil.copytree(dagster_run.pipeline.store.root, tmp_path / "record")
    settings = {"store": str(tmp_path / "record"), "pool.validation_share": 0.2}
    chain = Pipeline(load_config(str(dagster_run.config_file), settings))
    for run in (crawl_run(chain, crawl) for crawl in chain.crawls()):
        finish(instance, request_of(run), dg.DagsterRunStatus.SUCCESS)
    assert [str(run.partition_key) for run in missing_runs(instance, chain)] == ["first"]
    retired = CliRunner().invoke(app, ["retire", "first", "-s", f"store={tmp_path / 'record'}"])
    assert retired.exit_code == 0, retired.output
    assert list(missing_runs(instance, chain)) == []
    assert require(chain.store, "materialise", "first/datamask").rows
    back = CliRunner().invoke(app, ["retire", "first", "--undo", "-s", f"store={tmp_path / 'record'}"])
    assert back.exit_code == 0, back.output
    assert [str(run.partition_key) for run in missing_runs(instance, chain)] == ["first"]
    unknown = CliRunner().invoke(app, ["retire", "nope", "-s", f"store={tmp_path / 'record'}"])
    assert unknown.exit_code == 1


def test_of_a_release_that_is_not_configured_nothing_is_asked_for(
    resource: PipelineResource, instance: dg.DagsterInstance
) -> None:
    """Another configuration on the same record made it, by settings of its own."""
    for _ in range(2):
        for run in tick(advance, resource, instance).run_requests:
            succeed(instance, run, resource.pipeline())
    freeze(resource.pipeline().store, "other", ["tiny-2024-10"])
    assert [run.partition_key for run in tick(advance, resource, instance).run_requests] == []


def test_only_discover_runs_unless_it_is_switched_on(tiny_defs: dg.Definitions) -> None:
    repository = tiny_defs.get_repository_def()
    running = {s.name for s in repository.sensor_defs if s.default_status is dg.DefaultSensorStatus.RUNNING}
    assert running == {"discover"}
    assert {schedule.name for schedule in repository.schedule_defs} == {"monthly_release", "sweep_weekly"}
    stopped = {schedule.default_status for schedule in repository.schedule_defs}
    assert stopped == {dg.DefaultScheduleStatus.STOPPED}


def test_a_resource_can_be_swapped(tiny_config_file: Path, tmp_path: Path) -> None:
    elsewhere = PipelineResource(config=str(tiny_config_file), store=str(tmp_path / "elsewhere"))
    defs = build_defs(config=str(tiny_config_file), resource_overrides={"pipeline": elsewhere})
    assert defs.resources is not None
    assert defs.resources["pipeline"].pipeline().store.root == str(tmp_path / "elsewhere")
