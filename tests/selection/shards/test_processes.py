"""Members that are forked and members that are started anew: the same bytes, and neither outlives who leads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from datamask_pipeline.selection.shards import processes
from datamask_pipeline.selection.shards.api import jobs_of, over_shards, select_over_shards
from datamask_pipeline.selection.shards.processes import Processes, may_fork
from datamask_pipeline.selection.shards.source import numbered

SETTINGS = {"chunk_rows": 64, "num_steps": 3, "sample_documents": 256, "diversity": "DiSF_uncentred"}


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*.npy"))}


@pytest.mark.parametrize("forks", [True, False])
def test_members_that_are_forked_or_begun_anew_make_the_bytes_of_one_process(
    forks: bool, cut: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "may_fork", lambda: forks)
    one = select_over_shards(cut(), tmp_path / "one", engine="here", **SETTINGS)
    two = select_over_shards(cut((0, 500)), tmp_path / "two", workers=2, **SETTINGS)
    assert bytes_of(two.folder) == bytes_of(one.folder)
    assert two.certificate == one.certificate


def test_a_process_with_other_threads_does_not_fork() -> None:
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    assert not may_fork()
    done.set()
    other.join()


@pytest.mark.parametrize("forks", [True, False])
def test_the_end_of_a_member_is_told_with_its_status(
    forks: bool, cut: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "may_fork", lambda: forks)
    config, _ = over_shards(None, {"chunk_rows": 64})
    with Processes(jobs_of(numbered(cut((0, 500))), config, 2)) as team:
        with pytest.raises(subprocess.TimeoutExpired):
            team._processes[0].wait(0.01)
        team._processes[0].kill()
        assert team._processes[0].wait(30) == -signal.SIGKILL
        assert team._processes[0].wait() == -signal.SIGKILL  # as often as asked
    assert team._processes[1].wait() == 0


FORKED = """
    import fcntl, os, signal, sys
    import torch
    from datamask_pipeline.selection.shards.api import jobs_of, over_shards
    from datamask_pipeline.selection.shards.processes import Processes, may_fork
    from datamask_pipeline.selection.shards.source import Shard, numbered

    torch.set_num_threads(4)
    many = torch.randn(2000, 2000)
    many @ many  # threads of torch do not keep it from forking
    assert may_fork()
    lock = open(sys.argv[3], "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    config, _ = over_shards(None, {"chunk_rows": 64})
    shards = numbered([Shard(vectors=sys.argv[1], quality={"quality": sys.argv[2]})])
    with Processes(jobs_of(shards, config, 3)) as team:
        team.ask("open")
        print(*[process.pid for process in team._processes], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_forked_members_end_with_who_leads_and_hold_nothing_of_it(cut: Any, tmp_path: Path) -> None:
    import fcntl

    shard, lock = cut()[0], tmp_path / "lock"
    command = [sys.executable, "-c", textwrap.dedent(FORKED), str(shard.vectors)]
    command += [str(shard.quality["quality"]), str(lock)]
    led = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=False)
    assert led.returncode == -signal.SIGKILL
    members = [int(number) for number in led.stdout.split()]
    assert len(members) == 3
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # members never held it
    ends = time.monotonic() + 30
    while any(_lives(member) for member in members):
        assert time.monotonic() < ends
        time.sleep(0.05)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
