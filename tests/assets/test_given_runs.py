"""A release that goes on from another one, through Dagster: its checks pass, and its pages tell what changed."""

import dataclasses
import shutil
import subprocess
import sys
from typing import Any

import dagster as dg
import pytest
from tiny_chain import write_crawl

from assets.partitions import partition_key
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.storage import require
from datamask_pipeline.storage.leases import machine_label

NEW, MIRROR = "tiny-2024-22", "tiny-2024-26"
ARM = partition_key("arm", "second/datamask")


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def second(dagster_run: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tiny record with a third crawl, and a release that adds it, up to the subset of one arm; then one that adds a
    mirror of an earlier crawl.
    """
    folder = tmp_path_factory.mktemp("given")
    config = dagster_run.pipeline.config
    record = shutil.copytree(dagster_run.pipeline.store.root, folder / "record")
    crawls = shutil.copytree(config.source.options["root"], folder / "crawls")
    write_crawl(crawls, NEW, 47, seed=7)  # a third of all is not what it adds
    releases = {"first": {"crawls": ["tiny-2024-10", "tiny-2024-18"]}, "second": {"given": "first"}}
    releases["third"] = {"given": "second"}
    settings = {"store": str(record), "source.options.root": str(crawls), "releases": releases}
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    )
    (record / ".staging").mkdir(exist_ok=True)
    left = record / ".staging" / f"{machine_label()}.{int(gone.stdout)}.left.parquet"
    left.write_bytes(b"")
    pipeline = Pipeline(load_config(str(dagster_run.config_file), settings))
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("crawls", [NEW])
        instance.add_dynamic_partitions("releases", ["second"])
        run = dataclasses.replace(dagster_run, instance=instance, settings=settings, pipeline=pipeline)
        results = [
            run.job(job, key)
            for job, key in (("crawl_job", NEW), ("release_job", "second"), ("arm_job", ARM))
        ]
        shutil.copytree(crawls / "tiny-2024-10", crawls / MIRROR)
        for path in (crawls / MIRROR).iterdir():
            path.write_text(path.read_text().replace("urn:uuid:", "urn:uuid:mirror-"))
        mirrored = Pipeline(load_config(str(dagster_run.config_file), settings))
        instance.add_dynamic_partitions("crawls", [MIRROR])
        instance.add_dynamic_partitions("releases", ["third"])
        run = dataclasses.replace(run, pipeline=mirrored)
        adds_nothing = [
            run.job(job, key)
            for job, key in (
                ("crawl_job", MIRROR),
                ("release_job", "third"),
                ("arm_job", partition_key("arm", "third/datamask")),
            )
        ]
        yield results, left, pipeline, adds_nothing


@pytest.mark.parametrize("of", [0, 3])
def test_every_check_of_it_passes(second: Any, of: int) -> None:
    """Of a release that adds documents, and of one that finds none to add."""
    results = second[of]
    checks = [check for result in results for check in result.get_asset_check_evaluations()]
    assert [check.check_name for check in checks if not check.passed] == []
    assert all(result.success for result in results)


def test_a_step_removes_what_a_killed_one_left(second: Any) -> None:
    _, left, _, _ = second
    assert not left.exists()


def test_a_mirror_of_an_earlier_crawl_adds_nothing(second: Any) -> None:
    (told,) = (
        each.metadata
        for each in second[3][-1].asset_materializations_for_node("select")
        if each.asset_key == dg.AssetKey("selection_mask")
    )
    assert (told["diff: came"].value, told["diff: went"].value) == (0, 0)


def test_the_mask_tells_how_it_differs_from_the_release_before(second: Any) -> None:
    results, _, pipeline, _ = second
    (told,) = (
        each.metadata
        for each in results[-1].asset_materializations_for_node("select")
        if each.asset_key == dg.AssetKey("selection_mask")
    )
    assert "of a new crawl" in told["diff from first"].value
    assert told["diff: went"].value == 0
    kept = {
        release: pipeline.store.manifest(require(pipeline.store, "select", f"{release}/datamask"))["counts"][
            "kept"
        ]
        for release in ("first", "second")
    }
    assert told["diff: stayed"].value == kept["first"]
    assert told["diff: came"].value == kept["second"] - kept["first"] > 0
