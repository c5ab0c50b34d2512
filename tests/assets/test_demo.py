"""`python -m datamask_pipeline.demo` from outside."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dagster as dg

ROOT = Path(__file__).parents[2]


def demo(*arguments: str, home: Path) -> dict[str, Any]:
    environment = {"DAGSTER_HOME": str(home), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "datamask_pipeline.demo", *arguments]
    return {"args": command, "cwd": ROOT, "env": environment, "text": True}


def run_demo(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(**demo(*arguments, home=home), capture_output=True, timeout=240)


def test_a_refused_setting_is_one_line_and_a_failure(tmp_path: Path) -> None:
    done = run_demo("--set", "select.ratio=1.5", home=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "ratio" in done.stderr
    assert "1.5" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failing_step_is_one_line_and_a_failure(tiny_config_file: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "crawls" / "broken").mkdir(parents=True)
    (tmp_path / "crawls" / "broken" / "000.parquet").write_bytes(b"PAR1 cut short")
    done = run_demo(
        f"--config={tiny_config_file}",
        f"--set=source.options.root={tmp_path / 'crawls'}",
        f"--set=store={tmp_path / 'record'}",
        home=tmp_path / "home",
    )
    assert done.returncode == 1
    assert "error: crawl_job of broken: " in done.stderr
    assert "000.parquet" in done.stderr
    assert "Traceback" not in done.stderr


def held_places(home: Path) -> list[str]:
    """The pools' places that a run holds."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        storage = instance.event_log_storage
        infos = [storage.get_concurrency_info(key) for key in storage.get_concurrency_keys()]
        return [slot.run_id for info in infos for slot in info.claimed_slots]


def test_a_demo_killed_inside_a_step_does_not_block_the_next(tiny_config_file: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home)
    arguments = (f"--config={tiny_config_file}", f"--set=store={tmp_path / 'record'}")
    first = subprocess.Popen(**demo(*arguments, home=home), stdout=subprocess.DEVNULL, start_new_session=True)
    while first.poll() is None and not (tmp_path / "record" / ".scratch" / "embed").exists():
        time.sleep(0.002)
    os.killpg(first.pid, signal.SIGSTOP)
    second = run_demo(*arguments, home=home)
    assert second.returncode == 1
    assert "another demo is running" in second.stderr
    os.killpg(first.pid, signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    assert held_places(home), "killed while it held a place, or this test shows nothing"

    done = run_demo(*arguments, home=home)
    assert done.returncode == 0, done.stderr
    assert not held_places(home)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        statuses = [run.status for run in instance.get_runs()]
    assert statuses.count(dg.DagsterRunStatus.FAILURE) == 1
    assert set(statuses) == {dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS}
