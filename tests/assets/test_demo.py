"""`python -m datamask_pipeline.demo` from outside."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_demo(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {"DAGSTER_HOME": str(home), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "datamask_pipeline.demo", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


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
