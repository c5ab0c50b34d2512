"""`make dev` refuses in one line what Dagster would notice late or not say at all."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from datamask_pipeline.dev import serve

ROOT = Path(__file__).parents[2]


def run_dev(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "datamask_pipeline.dev", *arguments]
    given = {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)


def refused(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert not done.stdout
    return done.stderr


def test_a_taken_port_is_refused_before_anything_is_started() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = refused(run_dev("--port", str(port)))
    assert f"port {port} of 127.0.0.1 cannot be used" in said
    assert "make dev PORT=" in said


@pytest.mark.sampled(1)
@pytest.mark.parametrize("text", ["select: {latio: 0.1}\n", "select: [\n", "- 1\n"])
def test_a_broken_configuration_is_refused_instead_of_shown_as_an_empty_graph(
    text: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    assert "mine.yaml" in refused(run_dev(DATAMASK_CONFIG=str(path)))


def test_the_makefile_takes_a_port() -> None:
    shown = subprocess.run(
        ["make", "--dry-run", "dev", "PORT=3456"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "datamask_pipeline.dev --port 3456" in shown.stdout


def test_the_makefile_takes_another_instance_as_the_documentation_says(tmp_path: Path) -> None:
    documented = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    assert "make dev DAGSTER_HOME=/whole/path" in documented
    home = f"DAGSTER_HOME={tmp_path / 'my home'}"
    shown = subprocess.run(
        ["make", "-s", "instance", home], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert not shown.stdout
    assert (tmp_path / "my home/dagster.yaml").read_bytes() == (ROOT / "dagster.yaml").read_bytes()


@pytest.mark.parametrize("home", ["my home", ""])
def test_a_relative_instance_is_refused_before_it_is_made(home: str, tmp_path: Path) -> None:
    """Dagster refuses it, by a stack trace, once the folder was made."""
    for name in ("Makefile", "dagster.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    command = ["make", "-s", "instance", f"DAGSTER_HOME={home}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"error: DAGSTER_HOME='{home}' is no whole path" in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("target", ["dev", "demo"])
def test_the_instance_lies_in_the_checkout_whatever_its_folder_is_called(target: str, tmp_path: Path) -> None:
    checkout = tmp_path / "my checkout # 1"
    program = checkout / ".venv/bin/python"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\ncat "$DAGSTER_HOME/dagster.yaml"\n')
    program.chmod(0o755)
    for name in ("Makefile", "dagster.yaml", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, checkout)
    (checkout / ".venv/.installed").touch()
    for text in ("# as it was\n", "# newer\n"):
        (checkout / "dagster.yaml").write_text(text)
        os.utime(checkout / "dagster.yaml", (later := time.time() + len(text), later))
        done = subprocess.run(
            ["make", "--no-print-directory", target],
            cwd=checkout,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, text, "")
    assert [path.name for path in tmp_path.iterdir()] == [checkout.name]
    assert (checkout / ".dagster/dagster.yaml").is_file()


def test_settings_of_the_instance_that_somebody_changed_stay(tmp_path: Path) -> None:
    """Storage in Postgres, for one, was replaced without a word once the checkout had a newer file."""
    for name in ("Makefile", "dagster.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    mine, home = tmp_path / "home/dagster.yaml", f"DAGSTER_HOME={tmp_path / 'home'}"

    def told() -> str:
        command = ["make", "-s", "instance", home]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    assert told() == ""
    mine.write_text("# mine\n")
    assert told() == "", "the checkout has what it had"
    (tmp_path / "dagster.yaml").write_text("# newer\n")
    assert f"{mine} was changed here and stays" in told()
    assert mine.read_text() == "# mine\n"
    (tmp_path / "home/dagster.yaml.shipped").write_text("# newer\n")  # looked at, as the message says
    assert told() == ""
    mine.write_text("# newer\n")
    (tmp_path / "dagster.yaml").write_text("# newest\n")
    assert told() == ""
    assert mine.read_text() == "# newest\n"


def test_dagster_can_be_interrupted_where_a_shell_began_this_in_the_background(monkeypatch) -> None:
    """Its parts end by an interrupt, which such a job would hand down as ignored."""
    begun: list[object] = []

    def execv(_: object, arguments: list[str]) -> None:
        begun.extend([signal.getsignal(signal.SIGINT), *arguments])

    monkeypatch.setattr(os, "execv", execv)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        serve(port=free_port())
    finally:
        signal.signal(signal.SIGINT, before)
    assert begun[:3] == [signal.SIG_DFL, "dagster", "dev"]


def free_port() -> int:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        return int(other.getsockname()[1])
