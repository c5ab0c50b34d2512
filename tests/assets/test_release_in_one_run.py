"""A release in one run: Dagster is told what the assets' own steps would tell it, once, and no failure spreads."""

import dataclasses
import functools
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest
from dagster._core.definitions.data_version import (
    CODE_VERSION_TAG,
    CachingStaleStatusResolver,
    StaleStatus,
    get_input_data_version_tag,
)
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.events import DagsterEventType
from dagster._core.loader import LoadingContextForTest

from assets.chain import chain_job
from datamask_pipeline.definitions import build_defs
from datamask_pipeline.demo import run_release
from datamask_pipeline.pipeline import FLOW, Pipeline, load_config
from datamask_pipeline.stages import materialise
from datamask_pipeline.storage.releases import retire


@pytest.fixture(scope="module")
def told_run(dagster_run) -> Iterator:
    """The record of `dagster_run`, told in one run to an instance of its own, on which no other test ran a job."""
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("crawls", dagster_run.pipeline.crawls())
        instance.add_dynamic_partitions("releases", ["first"])
        run = dataclasses.replace(dagster_run, instance=instance)
        assert run.job("chain_job", "first").success
        yield run


def steps(result: dg.ExecuteInProcessResult, kind: str) -> set[str]:
    return {str(event.step_key) for event in result.all_events if event.event_type_value == kind}


def test_it_has_a_step_for_each_stage_and_one_that_fails_with_any() -> None:
    assert {node.name for node in chain_job.nodes} == {"all_made", *(f"all_{stage.name}" for stage in FLOW)}


@pytest.mark.slow
def test_nothing_that_it_made_is_outdated(told_run, tiny_defs: dg.Definitions) -> None:
    """Neither by its code version nor by its inputs."""
    graph = tiny_defs.resolve_asset_graph()
    resolver = CachingStaleStatusResolver(told_run.instance, graph, LoadingContextForTest(told_run.instance))
    told = 0
    for asset in graph.get_all_asset_keys():
        for partition in told_run.instance.get_materialized_partitions(asset):
            told += 1
            status = resolver.get_status(asset, partition)
            assert status is StaleStatus.FRESH, (
                asset,
                partition,
                resolver.get_stale_causes(asset, partition),
            )
    assert told > 20


@pytest.mark.slow
def test_what_is_found_under_a_changed_setting_is_told_again(dagster_run, tmp_path: Path) -> None:
    """Questions are what they were, whatever length of them a model is asked: else they stay outdated in Dagster."""
    shutil.copytree(dagster_run.pipeline.store.root, tmp_path / "record")
    settings: dict[str, object] = {"store": str(tmp_path / "record")}
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("crawls", dagster_run.pipeline.crawls())
        instance.add_dynamic_partitions("releases", ["first"])
        run = dataclasses.replace(dagster_run, instance=instance)
        assert run.job("chain_job", "first", **settings).success
        settings["evaluate.max_length"] = 63
        result = run.job("chain_job", "first", **settings)
    told = {
        event.asset_key.to_user_string(): event.step_materialization_data.materialization
        for event in result.all_events
        if event.event_type_value == "ASSET_MATERIALIZATION"
    }
    assert "selection_mask" not in told
    questions = told["benchmark_questions"]
    assert questions.metadata["outcome"].value == "unchanged, reused"
    graph = run.defs(**settings)[0].resolve_asset_graph()
    version = graph.get(dg.AssetKey("benchmark_questions")).code_version
    assert questions.tags[CODE_VERSION_TAG] == version


@pytest.mark.slow
def test_what_dagster_knows_is_seen_and_neither_told_nor_checked_again(told_run) -> None:
    result = told_run.job("chain_job", "first")
    assert result.success
    kinds = [event.event_type_value for event in result.all_events]
    assert "ASSET_MATERIALIZATION" not in kinds
    assert "ASSET_CHECK_EVALUATION" not in kinds
    seen = [
        event.asset_observation_data.asset_observation
        for event in result.all_events
        if event.event_type_value == "ASSET_OBSERVATION"
    ]
    assert {each.metadata["outcome"].value for each in seen} == {"unchanged, reused"}
    assert ("pretrained_model", "first|datamask.dense.seed0") in {
        (each.asset_key.to_user_string(), each.partition) for each in seen
    }


@pytest.mark.slow
def test_what_dagster_does_not_know_is_told_and_checked(dagster_run) -> None:
    """As after `datamask run`; what the run is at shows as planned before."""
    settings = {**dagster_run.settings}
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("crawls", dagster_run.pipeline.crawls())
        instance.add_dynamic_partitions("releases", ["first"])
        defs, _, _ = dagster_run.defs(**settings)
        result = defs.resolve_job_def("chain_job").execute_in_process(
            instance=instance, partition_key="first"
        )
        for asset in dagster_run.instance.all_asset_keys():
            partitions = instance.get_materialized_partitions(asset)
            assert partitions == dagster_run.instance.get_materialized_partitions(asset)
            planned = {
                entry.dagster_event.asset_materialization_planned_data.partition
                for entry in instance.all_logs(result.run_id)
                if entry.dagster_event
                and entry.dagster_event.event_type_value == "ASSET_MATERIALIZATION_PLANNED"
                and entry.dagster_event.asset_key == asset
            }
            assert planned == partitions
            event = instance.get_latest_materialization_event(asset)
            assert event.asset_materialization.metadata["outcome"].value == "unchanged, reused"
        checks = {
            (each.asset_key, each.check_name, each.partition) for each in result.get_asset_check_evaluations()
        }
        assert all(each.passed for each in result.get_asset_check_evaluations() if each.blocking)
        assert (dg.AssetKey("selection_mask"), "budget_is_exact", "first|random") in checks
        assert all(
            each.target_materialization_data.run_id == result.run_id
            for each in result.get_asset_check_evaluations()
        )


@pytest.mark.slow
def test_a_run_is_told_and_checked_by_what_it_made_itself(
    dagster_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run, with other settings, makes another mask current before the subset is made."""
    shutil.copytree(dagster_run.pipeline.store.root, tmp_path / "record")
    settings = {"store": str(tmp_path / "record")}
    other = Pipeline(load_config(str(dagster_run.config_file), {**settings, "select.lamb": 0.1}))
    make = materialise.run
    own = other.store.current("select", "first/datamask")
    assert own is not None

    @functools.wraps(make)
    def make_after_another_run(*arguments: Any, **given: Any) -> Any:
        other.run("select", "first", "datamask")
        return make(*arguments, **given)

    monkeypatch.setattr(materialise, "run", make_after_another_run)
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("crawls", dagster_run.pipeline.crawls())
        instance.add_dynamic_partitions("releases", ["first"])
        result = dataclasses.replace(dagster_run, instance=instance).job("chain_job", "first", **settings)
        current = other.store.current("select", "first/datamask")
        assert current is not None
        assert current.content_digest != own.content_digest
        assert [
            each for each in result.get_asset_check_evaluations() if each.blocking and not each.passed
        ] == []
        assert result.success
        record = instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=dg.AssetKey("fineweb_mask"), asset_partitions=["first|datamask"]),
            limit=1,
        ).records[0]
        tags = record.asset_materialization.tags
        assert tags[get_input_data_version_tag(dg.AssetKey("selection_mask"))] == own.content_digest


@pytest.mark.slow
def test_a_failed_blocking_check_stops_what_follows_and_is_asked_again(dagster_run, tmp_path: Path) -> None:
    """Vectors of another length reach the record by a damaged file; the other crawl is scored, no release is made."""
    source = dagster_run.pipeline.store
    ref = source.current("embed", "tiny-2024-10")
    shutil.copytree(source.root, tmp_path / "record")
    shutil.rmtree(tmp_path / "record" / "score")
    path = tmp_path / "record" / ref.location / f"{source.part_names(ref)[0]}.npy"
    whole = path.read_bytes()
    np.save(path, np.load(path) / np.float16(2))  # of the same size, or it would be made again
    settings = {"store": str(tmp_path / "record")}
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("crawls", dagster_run.pipeline.crawls())
        instance.add_dynamic_partitions("releases", ["first"])
        defs, _, _ = dagster_run.defs(**settings)
        job = defs.resolve_job_def("chain_job")

        def run() -> dg.ExecuteInProcessResult:
            return job.execute_in_process(instance=instance, partition_key="first", raise_on_error=False)

        for _ in range(2):
            result = run()
            assert not result.success
            assert steps(result, "STEP_FAILURE") == {"all_embed"}
            assert "all_score" not in steps(result, "STEP_START")
            (failure,) = (event for event in result.all_events if event.is_step_failure)
            told = failure.step_failure_data.user_failure_data.description
            assert "embed of tiny-2024-10" in told
            assert "unit_norm of document_embeddings" in told
            assert "tiny-2024-18" not in told
        path.write_bytes(whole)
        assert run().success


@pytest.mark.slow
def test_an_arm_that_fails_keeps_no_other_from_being_made_and_measured(dagster_run, tmp_path: Path) -> None:
    """As in `datamask run`: what needs the arm is not made, though an earlier run left a mask of it."""
    shutil.copytree(dagster_run.pipeline.store.root, tmp_path / "record")
    for stage in ("select", "materialise", "pretrain"):
        for key in (tmp_path / "record" / stage / "first").glob("datamask*"):
            shutil.rmtree(key)
    settings = {
        "store": str(tmp_path / "record"),
        "arms.random": {"policy": "random", "num_documents": 1_000_000},
    }
    store = Pipeline(load_config(str(dagster_run.config_file), settings)).store
    before = store.current("materialise", "first/random"), store.current("compare", "first")
    result = dagster_run.job("chain_job", "first", **settings)
    assert not result.success
    assert steps(result, "STEP_FAILURE") == {"all_made"}
    for stage, key in (
        ("select", "datamask"),
        ("materialise", "datamask"),
        ("pretrain", "datamask.dense.seed0"),
    ):
        assert store.current(stage, f"first/{key}") is not None, stage
    assert (store.current("materialise", "first/random"), store.current("compare", "first")) == before
    made = {
        (event.asset_key.to_user_string(), event.partition)
        for event in result.all_events
        if event.event_type_value in ("ASSET_MATERIALIZATION", "ASSET_OBSERVATION")
    }
    assert ("fineweb_mask", "first|datamask") in made
    assert not any("random" in str(partition) for _, partition in made)
    (failure,) = (event for event in result.all_events if event.is_step_failure)
    told = failure.step_failure_data.user_failure_data.description
    assert told.startswith("select of first/random: ")
    assert "materialise" not in told


@pytest.mark.slow
def test_a_run_of_what_failed_alone_does_not_end_well(
    dagster_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step is all that failed, and knows nothing of the run before."""
    shutil.copytree(dagster_run.pipeline.store.root, tmp_path / "record")
    monkeypatch.setenv("TRIED", json.dumps([str(dagster_run.config_file), str(tmp_path / "record")]))
    job, tags = dg.reconstructable(job_of_an_arm_that_fails), {"dagster/partition": "first"}
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        instance.add_dynamic_partitions("crawls", dagster_run.pipeline.crawls())
        instance.add_dynamic_partitions("releases", ["first"])
        first = dg.execute_job(job, instance, tags=tags, raise_on_error=False)
        options = dg.ReexecutionOptions.from_failure(first.run_id, instance)
        again = dg.execute_job(job, instance, tags=tags, reexecution_options=options, raise_on_error=False)
        for result, told in (
            (first, "select of first/random: "),
            (again, "not made: select of first/random, "),
        ):
            (failure,) = (event for event in result.all_events if event.is_step_failure)
            assert failure.step_key == "all_made"
            assert failure.step_failure_data.user_failure_data.description.startswith(told)


def job_of_an_arm_that_fails() -> dg.JobDefinition:
    config, record = json.loads(os.environ["TRIED"])
    settings = {"store": record, "arms.random": {"policy": "random", "num_documents": 1_000_000}}
    return build_defs(config=config, settings=settings).resolve_job_def("chain_job")


@pytest.mark.slow
def test_a_run_that_is_run_again_takes_a_crawl_that_is_gone_as_it_stands(
    dagster_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its first run does: by hand from that run's page, or by Dagster where the worker was killed."""
    root = tmp_path / "crawls"
    shutil.copytree(dagster_run.pipeline.config.source.options["root"], root)
    shutil.rmtree(root / "tiny-2024-10")
    shutil.copytree(dagster_run.pipeline.store.root, tmp_path / "record")
    monkeypatch.setenv(
        "TRIED", json.dumps([str(dagster_run.config_file), str(tmp_path / "record"), str(root)])
    )
    job, tags = dg.reconstructable(job_without_a_crawl), {"dagster/partition": "first"}
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        instance.add_dynamic_partitions("crawls", dagster_run.pipeline.crawls())
        instance.add_dynamic_partitions("releases", ["first"])
        first = dg.execute_job(job, instance, tags=tags, raise_on_error=False)
        assert first.success
        options = dg.ReexecutionOptions(parent_run_id=first.run_id, step_selection=["all_made"])
        again = dg.execute_job(job, instance, tags=tags, reexecution_options=options, raise_on_error=False)
        assert again.success


def job_without_a_crawl() -> dg.JobDefinition:
    config, record, root = json.loads(os.environ["TRIED"])
    settings = {"store": record, "source.options.root": root}
    return build_defs(config=config, settings=settings).resolve_job_def("chain_job")


def test_of_a_retired_release_a_job_makes_nothing_either(dagster_run, tmp_path: Path) -> None:
    shutil.copytree(dagster_run.pipeline.store.root, tmp_path / "record")
    settings = {"store": str(tmp_path / "record"), "select.lamb": 0.3}
    store = Pipeline(load_config(str(dagster_run.config_file), settings)).store
    retire(store, "first", retired=True)
    before = store.current("select", "first/datamask")
    for job, partition in (("chain_job", "first"), ("arm_job", "first|datamask")):
        result = dagster_run.job(job, partition, **settings)
        failures = [event for event in result.all_events if event.is_step_failure]
        assert failures, job
        for failure in failures:
            assert "is retired: nothing is made of it" in (
                failure.step_failure_data.user_failure_data.description
            )
    assert store.current("select", "first/datamask") == before


@pytest.mark.slow
def test_the_demo_tells_each_artefact_once(dagster_run) -> None:
    defs, lines, narrator = dagster_run.defs()
    run_release(dagster_run.instance, defs, dagster_run.pipeline, "first", narrator)
    told = [tuple(line.split()[:2]) for line in lines if "reused" in line]
    assert len(told) == len(set(told)) == len(narrator.outcomes)


@pytest.mark.parametrize("job", ["chain_job", "release_job"])
def test_a_run_that_is_terminated_ends_and_tries_no_step_again(
    job: str, dagster_run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster itself would try an interrupted step again, twice, in the same run."""
    asked: list[str] = []

    def interrupted(self: Pipeline, stage: str, *names: str, **named: object) -> None:
        asked.append(stage)
        self.crawls()
        (run,) = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
        instance.report_run_canceling(run)
        raise DagsterExecutionInterruptedError

    monkeypatch.setattr(Pipeline, "run", interrupted)
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("crawls", dagster_run.pipeline.crawls())
        instance.add_dynamic_partitions("releases", ["first"])
        dataclasses.replace(dagster_run, instance=instance).job(job, "first")
        (run,) = instance.get_runs()
        kinds = {
            event.dagster_event_type for event in instance.all_logs(run.run_id) if event.is_dagster_event
        }
    assert run.status is dg.DagsterRunStatus.CANCELED
    assert len(asked) == 1
    assert DagsterEventType.STEP_UP_FOR_RETRY not in kinds
