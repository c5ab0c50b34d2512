"""`python -m datamask_pipeline.demo` from outside."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask_pipeline import schema
from datamask_pipeline.demo import only_demo_of
from datamask_pipeline.pipeline import Pipeline

ROOT = Path(__file__).parents[2]
DEMO = ("-m", "datamask_pipeline.demo")
#: The demo, killed inside its first step.
KILLED = """
import os, signal
from datamask_pipeline.pipeline import Pipeline
Pipeline.run = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
from datamask_pipeline.demo import main
main()
"""


def run_demo(
    *arguments: str, home: Path, program: tuple[str, str] = DEMO
) -> subprocess.CompletedProcess[str]:
    environment = {"DAGSTER_HOME": str(home), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *program, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_a_refused_setting_is_one_line_and_a_failure(tmp_path: Path) -> None:
    done = run_demo("--set", "select.ratio=1.5", home=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "ratio" in done.stderr
    assert "1.5" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_failing_step_is_one_line_and_a_failure(tiny_config_file: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "crawls" / "broken").mkdir(parents=True)
    # The first rows, which the check before any work reads, are sound; a later shard's pages are not.
    row = {field.name: ["x"] if field.type == pa.string() else [1] for field in schema.FINEWEB}
    for name in ("000", "001"):
        shard = tmp_path / "crawls" / "broken" / f"{name}.parquet"
        pq.write_table(pa.table(row, schema=schema.FINEWEB), shard)
    whole = shard.read_bytes()
    shard.write_bytes(whole[:4] + bytes(100) + whole[104:])
    done = run_demo(
        f"--config={tiny_config_file}",
        f"--set=source.options.root={tmp_path / 'crawls'}",
        f"--set=store={tmp_path / 'record'}",
        home=tmp_path / "home",
    )
    assert done.returncode == 1
    assert "error: crawl_job of broken: " in done.stderr
    assert "001.parquet" in done.stderr
    assert "Traceback" not in done.stderr


def home_of(folder: Path) -> Path:
    """A new DAGSTER_HOME with the project's settings, its pools of one place among them."""
    home = folder / "home"
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home)
    return home


def held_places(home: Path) -> list[str]:
    """The pools' places that a run holds."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        storage = instance.event_log_storage
        infos = [storage.get_concurrency_info(key) for key in storage.get_concurrency_keys()]
        return [slot.run_id for info in infos for slot in info.claimed_slots]


@pytest.mark.slow
def test_a_second_demo_on_the_same_instance_is_refused(tiny_config_file: Path, tmp_path: Path) -> None:
    arguments = (f"--config={tiny_config_file}", f"--set=store={tmp_path / 'record'}")
    with dg.DagsterInstance.from_config(str(home_of(tmp_path))) as instance, only_demo_of(instance):
        second = run_demo(*arguments, home=tmp_path / "home")
    assert second.returncode == 1
    assert "another demo is running" in second.stderr
    assert "make demo DAGSTER_HOME=/whole/path" in second.stderr, "the environment's does not reach make's"
    assert not (tmp_path / "record").exists()


@pytest.mark.slow
def test_a_demo_killed_inside_a_step_does_not_block_the_next(
    tiny_config_file: Path, tiny_run: Pipeline, tmp_path: Path
) -> None:
    home = home_of(tmp_path)
    record = shutil.copytree(tiny_run.store.root, tmp_path / "record")  # so that no step takes long
    arguments = (f"--config={tiny_config_file}", f"--set=store={record}")
    killed = run_demo(*arguments, home=home, program=("-c", KILLED))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert held_places(home), "killed while it held a place, or this test shows nothing"

    done = run_demo(*arguments, home=home)
    assert done.returncode == 0, done.stderr
    assert not held_places(home)
    page = tmp_path / "pages" / "first-datamask.html"
    assert done.stdout.splitlines()[-1].endswith(str(page)), "it ends with the page's path"
    assert page.stat().st_size > 10_000
    with dg.DagsterInstance.from_config(str(home)) as instance:
        statuses = [run.status for run in instance.get_runs()]
    assert statuses.count(dg.DagsterRunStatus.FAILURE) == 1
    assert set(statuses) == {dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS}
