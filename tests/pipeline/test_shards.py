"""Several processes at one crawl's shards: each shard is done once, whoever is lost, and the digests are those of one."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import pytest
from test_kill import RUN, digests

from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.pipeline.config import PipelineConfig
from datamask_pipeline.storage import ArtefactBuilder, Store, releases
from datamask_pipeline.storage.leases import is_alive

#: Notes each part that is written, and takes longer over it, so that two processes surely meet.
NOTING = """
import os, pathlib, sys, time
from datamask_pipeline.storage import ArtefactBuilder
notes, write = pathlib.Path(sys.argv.pop(1)), ArtefactBuilder.write_part
def write_part(self, name, *arguments, **options):
    time.sleep(.05)
    made = write(self, name, *arguments, **options)
    with (notes / str(os.getpid())).open("a") as stream:
        stream.write(f"{self.stage}/{self.key}/{name}\\n")
    return made
ArtefactBuilder.write_part = write_part
"""


def start(config: Path, record: Path, *arguments: str, script: str = "", first: str = "") -> forked.Forked:
    options = ["run", "-c", str(config), "-s", f"store={record}", "--until", "materialise", *arguments]
    return forked.Forked(script + RUN, *([first] if first else []), *options)


def test_tasks_of_an_array_share_the_shards_and_each_is_done_once(
    many_shards: Path, alone: dict[str, tuple[str, str]], tmp_path: Path
) -> None:
    """Task 1/2 is started twice."""
    notes = tmp_path / "notes"
    notes.mkdir()
    tasks = [
        start(many_shards, tmp_path / "record", "--shard", task, script=NOTING, first=str(notes))
        for task in ("0/2", "1/2", "1/2")
    ]
    said = ["".join(task.communicate()) for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0, 0], said
    assert digests(Store(tmp_path / "record")) == alone
    written = [path.read_text().splitlines() for path in notes.iterdir()]
    by_shard = [line for lines in written for line in lines if line.startswith(("embed/", "score/"))]
    assert sorted(by_shard) == sorted(set(by_shard))
    assert len(written) > 1, "one process did all"
    Store(tmp_path / "record").sweep()
    assert not list((tmp_path / "record" / ".leases").rglob("shards/*"))


@pytest.mark.slow
def test_workers_beside_the_run_change_nothing_but_who_does_it(
    many_shards: Path, alone: dict[str, tuple[str, str]], tmp_path: Path
) -> None:
    run = start(many_shards, tmp_path / "record", "-s", "compute.workers=2")
    said = "".join(run.communicate())
    assert run.returncode == 0, said
    assert "worker ended" not in said
    assert digests(Store(tmp_path / "record")) == alone


@pytest.mark.slow
def test_a_lost_worker_costs_its_shard_and_no_more(
    many_shards: Path, alone: dict[str, tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of this run is killed in the middle of a shard, which the run then does itself."""
    from datamask_pipeline.pipeline import crew

    record, killed = tmp_path / "record", []
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import os, signal, sys, json\nfrom datamask_pipeline.storage import ArtefactBuilder\n"
        "ArtefactBuilder.write_array = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from datamask_pipeline.pipeline.crew import work\nwork(json.loads(sys.stdin.readline()))\n"
    )
    popen = subprocess.Popen

    def of_ours(command: list[str], **options: Any) -> Any:
        killed.append(popen([sys.executable, str(worker)], **options))
        killed[-1].args = command
        return killed[-1]

    pipeline = Pipeline(load_config(str(many_shards), {"store": str(record), "compute.workers": 2}))
    write = ArtefactBuilder.write_array

    def once_the_worker_is_dead(self: ArtefactBuilder, *arguments: Any, **options: Any) -> Any:
        killed[-1].wait(timeout=100)
        return write(self, *arguments, **options)

    for stage, _, call in pipeline.steps("first", "materialise"):
        with monkeypatch.context() as patched:
            if stage == "embed":
                patched.setattr(crew.subprocess, "Popen", of_ours)
                patched.setattr(ArtefactBuilder, "write_array", once_the_worker_is_dead)
            call()
    assert [worker.returncode for worker in killed] == [-signal.SIGKILL] * 2
    assert digests(pipeline.store) == alone


def test_a_worker_takes_no_interrupt_of_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would have it print a traceback; who started it is interrupted, and ends it."""
    from datamask_pipeline.pipeline import crew

    worker = tmp_path / "worker"
    worker.write_text(
        f"#!{sys.executable}\nimport pathlib, signal\n"
        f"pathlib.Path({str(tmp_path / 'blocked')!r}).write_text(str(signal.pthread_sigmask(signal.SIG_BLOCK, [])))\n"
    )
    worker.chmod(0o755)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with monkeypatch.context() as patched:
        patched.setattr(crew.sys, "executable", str(worker))
        with crew._processes([{}], None):
            pass
    assert "SIGINT" in (tmp_path / "blocked").read_text()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_a_worker_ends_with_the_run_that_was_killed(tmp_path: Path) -> None:
    begun, worker = tmp_path / "begun", tmp_path / "worker"
    worker.write_text(
        f"#!{sys.executable}\nimport os, pathlib, runpy, time\nfrom datamask_pipeline.pipeline import crew\n"
        f"def work(job):\n    pathlib.Path({str(begun)!r}).write_text(str(os.getpid()))\n    time.sleep(300)\n"
        "crew.work = work\nrunpy.run_module('datamask_pipeline.pipeline.worker', run_name='__main__')\n"
    )
    worker.chmod(0o755)
    run = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import time\nfrom datamask_pipeline.pipeline import crew\ncrew.sys.executable = {str(worker)!r}\n"
            "with crew._processes([{}], None):\n    time.sleep(300)\n",
        ]
    )
    try:
        _until(lambda: begun.is_file() and bool(begun.read_text()))
    finally:
        run.kill()
        run.wait()
    pid = int(begun.read_text())
    try:
        _until(lambda: not is_alive(pid))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 100
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_settings_value_survives_the_way_to_a_worker(many_shards: Path) -> None:
    config = load_config(str(many_shards), {"select.lamb": 0.3, "compute.workers": 2})
    values = json.loads(json.dumps(config.model_dump(mode="json", exclude_unset=True)))
    assert type(config).model_validate(values) == config
    assert isinstance(config, PipelineConfig)


def test_a_crawl_that_nobody_is_at_comes_before_one_that_another_works_on(
    many_shards: Path, tmp_path: Path
) -> None:
    pipeline = Pipeline(load_config(str(many_shards), {"store": str(tmp_path / "record")}))
    first, second = pipeline.crawls()
    other = Store(tmp_path / "record")
    for held in (first, f"{first}/shards/000-0"):
        with other.exclusive("ingest", held):
            assert [key for _, key, _ in pipeline.steps("first", "ingest")] == [second, first]
    assert [key for _, key, _ in pipeline.steps("first", "ingest")] == [first, second]


def test_two_runs_that_freeze_a_release_at_once_agree(many_shards: Path, tmp_path: Path) -> None:
    """The second finds the release frozen by the first, which had listed fewer crawls."""
    pipelines = [
        Pipeline(load_config(str(many_shards), {"store": str(tmp_path / "record")})) for _ in range(2)
    ]
    crawls = pipelines[0].crawls()
    exclusive = pipelines[1].store.exclusive

    def after_the_first(*arguments: Any, **options: Any) -> Any:
        releases.freeze(pipelines[0].store, "first", crawls[:1])
        return exclusive(*arguments, **options)

    pipelines[1].store.exclusive = after_the_first  # type: ignore[method-assign]
    assert pipelines[1].release_crawls("first") == crawls[:1]


def test_what_changed_while_shards_were_written_is_begun_again(many_shards: Path, tmp_path: Path) -> None:
    """As where a purge comes between the last shard and the artefact: no version without knowledge of it is made."""
    from datamask_pipeline.stages import ingest

    pipeline = Pipeline(load_config(str(many_shards), {"store": str(tmp_path / "record")}))
    (crawl, *_), store = pipeline.crawls(), pipeline.store
    begun: list[ingest.ShardWork[Any]] = []

    def begin() -> Any:
        """The second time, another setting stands for what the purge changes in the fingerprint."""
        settings = pipeline.config.ingest.model_copy(update={"min_language_score": 0.5} if begun else {})
        begun.append(ingest.begin(settings, store=store, crawl=crawl, source=pipeline.source))
        return begun[-1]

    made, _ = begin().complete(0.0, begin)
    assert made.fingerprint == begun[-1].builder.fingerprint != begun[0].builder.fingerprint
    assert [each["fingerprint"] for each in store.all_manifests("ingest")] == [made.fingerprint]


@pytest.mark.parametrize("given", ["3/2", "0/0", "-1/2", "1", "a/b", "1/2/3"])
def test_what_is_no_task_of_so_many_is_refused(given: str) -> None:
    from datamask_pipeline.cli.run import _start

    with pytest.raises(ConfigurationError, match="--shard"):
        _start(given)


def test_an_address_without_ray_is_refused(many_shards: Path) -> None:
    with pytest.raises(ConfigurationError, match="address is read by engine `ray` alone"):
        load_config(str(many_shards), {"compute.address": "auto"})


def test_ray_that_is_not_installed_is_said(
    many_shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    settings = {"store": str(tmp_path / "record"), "compute": {"engine": "ray", "workers": 2}}
    pipeline = Pipeline(load_config(str(many_shards), settings))
    with pytest.raises(ConfigurationError, match=r"pip install 'datamask-pipeline\[ray\]'"):
        pipeline.run("ingest", pipeline.crawls()[0])
