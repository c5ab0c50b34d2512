"""kill -9 of a run under Dagster's daemon: its place in a pool is free again, and its work is done, by no hand."""

import json
import os
import signal
import time
import urllib.request
from pathlib import Path

import dagster as dg
import pytest
from tiny_chain import write_crawl

from assets.partitions import CRAWLS, RELEASES
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import require

pytestmark = pytest.mark.chaos

LAUNCH = """
mutation Launch($selector: JobOrPipelineSelector!, $partition: String!) {
  launchRun(executionParams: {selector: $selector, mode: "default",
    executionMetadata: {tags: [{key: "dagster/partition", value: $partition}]}}) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }
"""
JOBS = {"step": "__ASSET_JOB", "tree": "__ASSET_JOB", "worker": "crawl_job", "chain": "chain_job"}
ASSETS = ("crawl_documents", "rejected_documents", "document_embeddings", "quality_scores")
FIRST_CRAWLS = ("tiny-2024-10", "tiny-2024-18")
SECONDS_TO_WAIT = 300
#: Dagster looks every 10 seconds for places of runs that ended 5 seconds ago; the rest is a busy machine's.
SECONDS_TO_FREE = 60


def launched(url: str, kind: str, partition: str) -> str:
    """The id of a run that was started as the page starts one: of chosen assets, each step in a process; or of a job."""
    selector: dict[str, object] = {
        "repositoryLocationName": "datamask_pipeline",
        "repositoryName": "__repository__",
        "pipelineName": JOBS[kind],
    }
    if JOBS[kind] == "__ASSET_JOB":
        selector |= {"assetSelection": [{"path": [asset]} for asset in ASSETS], "assetCheckSelection": []}
    body = json.dumps({"query": LAUNCH, "variables": {"selector": selector, "partition": partition}}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        told = json.load(answer)
    return str(told["data"]["launchRun"]["run"]["runId"])


def claimed(instance: dg.DagsterInstance) -> set[str]:
    """The runs that hold a place in a pool."""
    storage = instance.event_log_storage
    infos = [storage.get_concurrency_info(key) for key in storage.get_concurrency_keys()]
    return {slot.run_id for info in infos for slot in info.claimed_slots}


def processes(instance: dg.DagsterInstance, run_id: str) -> dict[str, int]:
    """The worker of a run, and the step that it began last, as far as they have begun; these may be one process."""
    kinds = {"PIPELINE_START": "worker", "STEP_START": "step"}
    events = [entry.dagster_event for entry in instance.all_logs(run_id) if entry.dagster_event]
    return {
        kinds[each.event_type_value]: each.pid
        for each in events
        if each.event_type_value in kinds and each.pid
    }


@pytest.mark.timeout(2 * SECONDS_TO_WAIT)
@pytest.mark.parametrize("kind", ["step", "tree", "worker", "chain"])
def test_a_killed_runs_place_in_a_pool_is_free_again_and_its_work_is_done(
    kind: str, dagster_url: str, dagster_home: Path, ui_config: Path
) -> None:
    store = Pipeline(load_config(str(ui_config))).store
    crawl = f"killed-{kind}"
    partition = "first" if kind == "chain" else crawl
    if kind != "chain":
        write_crawl(ui_config.parent / "crawls", crawl, 40, seed=len(kind))
    deadline = time.monotonic() + SECONDS_TO_WAIT
    with dg.DagsterInstance.from_config(str(dagster_home)) as instance:
        instance.add_dynamic_partitions(str(RELEASES.name if kind == "chain" else CRAWLS.name), [partition])
        run_id = launched(dagster_url, kind, partition)
        while run_id not in claimed(instance) or len(pids := processes(instance, run_id)) < 2:
            assert time.monotonic() < deadline, "no step holds a place"
            time.sleep(0.1)
        for pid in {*pids.values()} if kind == "tree" else {pids["step" if kind == "step" else "worker"]}:
            os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        if kind != "step":
            while run_id in claimed(instance):
                assert time.monotonic() < killed + SECONDS_TO_FREE, "its place is still held"
                time.sleep(0.2)
            print(f"{kind}: its place is free after {time.monotonic() - killed:.1f} s")
        # A step is tried again within its run, a run as another one.
        itself, another = (
            dg.RunsFilter(run_ids=[run_id]),
            dg.RunsFilter(tags={"dagster/parent_run_id": run_id}),
        )
        wanted = itself if kind == "step" else another
        if kind == "chain":  # that it goes on is enough; all that follows takes minutes
            while not all(store.current("score", name) for name in FIRST_CRAWLS):
                assert time.monotonic() < deadline, "its work was not done again"
                time.sleep(0.5)
            assert instance.get_runs(wanted)
            return
        while not any(run.status is dg.DagsterRunStatus.SUCCESS for run in instance.get_runs(wanted)):
            assert time.monotonic() < deadline, "its work was not done again"
            time.sleep(0.5)
        assert not claimed(instance)
    assert require(store, "score", crawl).rows
