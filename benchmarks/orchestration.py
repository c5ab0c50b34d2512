"""What orchestration costs: the tiny chain by `datamask run`, by Dagster in one process, and under the sensor `advance`.

`python -m benchmarks.orchestration [run|job|advance ...]` prints seconds on the clock and of processors, those of all child
processes included, from an empty record to the report, and for `advance` where the time between went.
"""

import contextlib
import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
#: Of prctl: this process becomes the parent of what its children leave behind, and so can wait for it.
SET_CHILD_SUBREAPER = 36
SECONDS_TO_WAIT = 1800


def main(*ways: str) -> None:
    """Measure each way once, in an empty folder each."""
    for way in ways or ("run", "job", "advance"):
        with tempfile.TemporaryDirectory() as folder:
            pid = os.fork()
            if pid == 0:
                measure(way, Path(folder))
                os._exit(0)
            os.waitpid(pid, 0)


def measure(way: str, folder: Path) -> None:
    """One way, in a process of its own, so that what it used is its children's."""
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    sys.path.insert(0, str(ROOT / "tests"))
    from tiny_chain import write_tiny_config

    config, home = write_tiny_config(folder), folder / "home"
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home)
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "DATAMASK_CONFIG": str(config),
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "PYTHONPATH": str(ROOT),
    }
    started = time.monotonic()
    with (folder / "log").open("wb") as log:
        if way == "advance":
            lines = under_advance(environment, folder, log.fileno())
        else:
            command = (
                [BIN / "datamask", "run"]
                if way == "run"
                else [sys.executable, "-m", "datamask_pipeline.demo"]
            )
            subprocess.run(command, env=environment, cwd=folder, stdout=log, stderr=log, check=True)
            lines = []
    seconds = time.monotonic() - started
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{way}: {seconds:.0f} s on the clock, {used.ru_utime + used.ru_stime:.0f} processor seconds")
    for line in lines:
        print(f"    {line}")
    sys.stdout.flush()


def under_advance(environment: dict[str, str], folder: Path, log: int) -> list[str]:
    """`dagster dev` with the sensor switched on, until the report is there; what its runs spent their time on."""
    workspace = ["-w", str(ROOT / "workspace.yaml")]
    command = [str(BIN / "dagster"), "dev", *workspace, "-h", "127.0.0.1", "-p", "0"]
    server = subprocess.Popen(
        command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True
    )
    try:
        switch = [str(BIN / "dagster"), "sensor", "start", "advance", *workspace]
        subprocess.run(switch, env=environment, cwd=folder, stdout=log, stderr=log, check=True)
        report, deadline = (
            folder / "record" / "compare" / "first" / "current.json",
            time.monotonic() + SECONDS_TO_WAIT,
        )
        while not report.exists():
            if time.monotonic() > deadline or server.poll() is not None:
                raise SystemExit((folder / "log").read_text()[-3000:])
            time.sleep(0.5)
        return list(of_runs(environment["DAGSTER_HOME"], folder / "record"))
    finally:
        server.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)


def of_runs(home: str, record: Path) -> Iterator[str]:
    """Where the time of the runs of an instance went, in seconds on the clock."""
    import dagster as dg

    waits: dict[str, float] = {}

    def add(what: str, seconds: float) -> None:
        waits[what] = waits.get(what, 0.0) + seconds

    with dg.DagsterInstance.from_config(home) as instance:
        runs = instance.get_run_records()
        first, last = min(run.create_timestamp.timestamp() for run in runs), 0.0
        for run in runs:
            begun, ended = run.start_time or first, run.end_time or run.start_time or first
            last = max(last, ended)
            add("runs: from asked for to begun", begun - run.create_timestamp.timestamp())
            starting: dict[str, float] = {}
            for entry in instance.all_logs(run.dagster_run.run_id):
                event = entry.dagster_event
                kind, step = (event.event_type_value, event.step_key or "") if event else ("", "")
                if kind in ("STEP_WORKER_STARTING", "STEP_START"):
                    if kind == "STEP_START" and step in starting:
                        add("steps: from asked for to begun", entry.timestamp - starting[step])
                    starting[step] = entry.timestamp
                elif kind == "STEP_SUCCESS":
                    add("steps: stages and their checks", entry.timestamp - starting[step])
    made = (json.loads(path.read_text()) for path in record.glob("*/**/manifest.json"))
    add("in stages themselves, as their manifests have it", sum(each["wall_seconds"] for each in made))
    yield f"{len(runs)} runs within {last - first:.0f} s"
    yield from (f"{seconds:7.0f} s {what}" for what, seconds in waits.items())


if __name__ == "__main__":
    main(*sys.argv[1:])
