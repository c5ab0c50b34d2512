"""Leases: one holder at a time, on machines that share nothing but the store, whatever becomes of the holder."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from s3_server import KEYS, s3_server

from datamask_pipeline.errors import StorageError, TakenOverError
from datamask_pipeline.storage import Store, leases

HOLD = """
import sys, time
from datamask_pipeline.storage import Store, leases
leases.BEAT_SECONDS = .05
with Store(sys.argv[1]).exclusive("embed", "crawl"):
    print("in", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    import s3fs

    with s3_server() as url:
        s3fs.S3FileSystem(endpoint_url=url, **KEYS).call_s3("create_bucket", Bucket="leases")
        yield url


@pytest.fixture(params=["folder", "object store"])
def store_of(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Makes clients of one store: a folder, or a bucket."""
    if request.param == "folder":
        return lambda: Store(tmp_path / "record")
    endpoint = request.getfixturevalue("endpoint")
    options = {"endpoint_url": endpoint, "skip_instance_cache": True, **KEYS}
    return lambda: Store(f"s3://leases/{tmp_path.name}", options)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(leases, "STILL_SECONDS", 1.0)
    monkeypatch.setattr(leases, "LOOK_SECONDS", 0.02)


def another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a holder of this process writes from now on is that of another machine, whose processes nobody sees."""
    monkeypatch.setattr(leases, "this_machine", lambda: "another machine")


def holder(record: Path, seconds: float) -> subprocess.Popen[str]:
    """A process that holds the lease, once it does."""
    command = [sys.executable, "-c", HOLD, str(record), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"
    return process


@pytest.mark.sampled(1)
def test_there_is_one_holder_at_a_time(store_of: Any, quick: None) -> None:
    """Four threads, each a client of its own, take it twice."""
    inside: list[int] = []
    most = 0

    def add() -> None:
        nonlocal most
        store = store_of()
        for _ in range(2):
            with store.exclusive("embed", "crawl"):
                inside.append(1)
                most = max(most, len(inside))
                time.sleep(0.01)
                inside.pop()

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_holder_is_waited_for_or_told(store_of: Any, quick: None) -> None:
    with store_of().exclusive("embed", "crawl"):
        with store_of().exclusive("embed", "crawl", wait=False) as is_ours:
            assert not is_ours
        with store_of().exclusive("embed", "other", wait=False) as is_ours:
            assert is_ours
    with store_of().exclusive("embed", "crawl", wait=False) as is_ours:
        assert is_ours


def test_the_lease_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    for end in (subprocess.Popen.kill, subprocess.Popen.wait):
        process = holder(tmp_path, 100 if end is subprocess.Popen.kill else 0)
        end(process)
        begun = time.monotonic()
        with Store(tmp_path).exclusive("embed", "crawl"):
            assert time.monotonic() - begun < leases.STILL_SECONDS / 4
        process.wait()


@pytest.mark.sampled(1)
def test_another_machines_lease_is_taken_over_when_it_is_still_not_when_it_beats(
    store_of: Any, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[str] = []

    def enter(who: str) -> None:
        with store_of().exclusive("embed", "crawl"):
            entered.append(who)

    with monkeypatch.context() as patched:
        another_machine(patched)
        with store_of().exclusive("embed", "crawl"):
            patched.setattr(leases, "this_machine", lambda: "this machine")
            waiting = threading.Thread(target=enter, args=("second",))
            waiting.start()
            time.sleep(2.5 * leases.STILL_SECONDS)
            assert entered == [], "its holder gave signs of life"
            patched.setattr(leases.Leases, "overwrite", lambda *_: None)  # and now it gives no more
            waiting.join(timeout=30)
            assert entered == ["second"]


def test_a_stopped_holder_does_not_point_to_its_work_after_it_was_taken_over(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The artefact of other settings that the second made stays the current one."""
    another_machine(monkeypatch)
    monkeypatch.setattr(leases, "BEAT_SECONDS", 1e6)
    first = Store(tmp_path)
    with first.exclusive("embed", "crawl"):
        builder = first.begin("embed", "crawl", version="1", config={"x": 1}, inputs={})
        folder = tmp_path / ".leases" / "embed" / "crawl"
        (content,) = [json.loads(path.read_text()) for path in folder.iterdir()]
        assert content["holder"]["pid"] == os.getpid()
        monkeypatch.setattr(leases, "this_machine", lambda: "this machine")
        second = Store(tmp_path)
        with second.exclusive("embed", "crawl"):
            made = second.begin("embed", "crawl", version="1", config={"x": 2}, inputs={}).commit([])
            with pytest.raises(StorageError, match="took over the work"):
                builder.write_part("000", [], pa.schema([("id", pa.string())]))
            with pytest.raises(StorageError, match="took over the work"):
                builder.commit([])
    assert second.current("embed", "crawl") == made
    with Store(tmp_path).exclusive("embed", "crawl", wait=False) as is_ours:
        assert is_ours


def test_a_process_that_stands_still_keeps_its_lease_as_long_as_it_lives(tmp_path: Path, quick: None) -> None:
    process, entered = holder(tmp_path, 100), threading.Event()

    def enter() -> None:
        with Store(tmp_path).exclusive("embed", "crawl"):
            entered.set()

    process.send_signal(signal.SIGSTOP)
    waiting = threading.Thread(target=enter)
    waiting.start()
    was_taken = entered.wait(2.5 * leases.STILL_SECONDS)
    process.kill()
    process.wait()
    waiting.join(timeout=30)
    assert not was_taken
    assert entered.is_set()


@pytest.mark.parametrize("changed", [{"started": ""}, {"machine": "another"}])
def test_a_holder_that_may_be_another_process_loses_a_still_lease(
    changed: dict[str, str], tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "BEAT_SECONDS", 1e6)
    with Store(tmp_path).exclusive("embed", "crawl"):
        (path,) = (tmp_path / ".leases" / "embed" / "crawl").iterdir()
        content = json.loads(path.read_text())
        content["holder"] |= changed
        path.write_text(json.dumps(content))
        with Store(tmp_path).exclusive("embed", "crawl", wait=False) as is_ours:
            assert not is_ours
        begun = time.monotonic()
        with Store(tmp_path).exclusive("embed", "crawl"):
            assert time.monotonic() - begun > leases.STILL_SECONDS


def test_a_process_of_which_the_system_tells_no_start_is_not_taken_for_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of other users' processes where /proc hides them."""
    monkeypatch.setattr(leases, "_state", lambda _: ("", ""))
    assert leases.is_alive(os.getpid(), "12345")


def test_what_fails_after_the_work_was_taken_over_is_told_as_that(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    another_machine(monkeypatch)
    monkeypatch.setattr(leases, "BEAT_SECONDS", 1e6)
    first = Store(tmp_path)
    scratch = first.scratch("embed/crawl/0")

    def work() -> None:
        with first.exclusive("embed", "crawl"):
            monkeypatch.setattr(leases, "this_machine", lambda: "this machine")
            with Store(tmp_path).exclusive("embed", "crawl"):
                scratch.rmdir()
                (scratch / "state").write_bytes(b"")

    with pytest.raises(TakenOverError, match="another run took over") as told:
        work()
    assert isinstance(told.value.__cause__, FileNotFoundError)


def test_a_lease_that_could_not_be_given_back_is_given_back_later(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process lives on, and nobody takes the lease from it."""

    def refuses(*_: Any) -> None:
        raise PermissionError(errno.EACCES, "no")

    with monkeypatch.context() as patched, Store(tmp_path).exclusive("embed", "crawl"):
        patched.setattr(leases.Leases, "overwrite", refuses)
    deadline = time.monotonic() + 30
    while Store(tmp_path).is_busy("embed", "crawl"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_storage_without_conditional_writes_is_said_once(
    endpoint: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    async def always_writes(self: Any, path: str, data: bytes, mode: str = "", **_: Any) -> None:
        bucket, key, _version = self.split_path(path)
        await self._call_s3("put_object", Bucket=bucket, Key=key, Body=data)

    monkeypatch.setattr(s3fs.S3FileSystem, "_pipe_file", always_writes)
    store = Store("s3://leases/plain", {"endpoint_url": endpoint, "skip_instance_cache": True, **KEYS})
    for _ in range(2):
        with store.exclusive("embed", "crawl"):
            pass
    assert [record.message for record in caplog.records if "only where there is none" in record.message] != []
    assert sum("only where there is none" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize(("number", "is_told"), [(errno.EIO, False), (errno.ENOSYS, True)])
def test_a_store_that_fails_is_not_taken_for_one_without_conditional_writes(
    endpoint: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    is_told: bool,
) -> None:
    import s3fs

    write = s3fs.S3FileSystem._pipe_file

    async def fails(self: Any, path: str, data: bytes, mode: str = "overwrite", **options: Any) -> None:
        if mode == "create":
            raise OSError(number, "no")
        await write(self, path, data, **options)

    monkeypatch.setattr(s3fs.S3FileSystem, "_pipe_file", fails)
    store = Store(f"s3://leases/{number}", {"endpoint_url": endpoint, "skip_instance_cache": True, **KEYS})
    outcome = contextlib.nullcontext() if is_told else pytest.raises(StorageError, match="no")
    with outcome, store.exclusive("embed", "crawl"):
        pass
    assert any("only where there is none" in record.message for record in caplog.records) == is_told


def test_a_creation_that_met_another_is_no_failure(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some stores answer two requests at once with a conflict, which is no refusal that the library knows."""
    import s3fs

    write, met = s3fs.S3FileSystem._pipe_file, []

    async def conflicts(self: Any, path: str, data: bytes, mode: str = "overwrite", **options: Any) -> None:
        await write(self, path, data, mode=mode, **options)
        if mode == "create" and "probe" not in path and not met:
            met.append(path)
            content = json.dumps({"free": True, "holder": {"machine": "another"}})
            await write(self, path, content.encode(), **options)
            raise OSError(errno.EIO, "conflict")

    monkeypatch.setattr(s3fs.S3FileSystem, "_pipe_file", conflicts)
    store = Store("s3://leases/conflict", {"endpoint_url": endpoint, "skip_instance_cache": True, **KEYS})
    with store.exclusive("embed", "crawl", wait=False) as is_ours:
        assert is_ours
    assert met


@pytest.mark.sampled(1)
@pytest.mark.parametrize("what", ["probe-", "/embed/"])
def test_a_creation_whose_answer_was_lost_is_ones_own(
    endpoint: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The library sends such a request again, and it is refused for what the first one wrote: nobody else is at work."""
    import s3fs

    write, lost = s3fs.S3FileSystem._pipe_file, []

    async def loses(self: Any, path: str, data: bytes, mode: str = "overwrite", **options: Any) -> None:
        if mode == "create" and what in path and not lost:
            lost.append(path)
            await write(self, path, data, mode=mode, **options)
        await write(self, path, data, mode=mode, **options)

    monkeypatch.setattr(s3fs.S3FileSystem, "_pipe_file", loses)
    options = {"endpoint_url": endpoint, "skip_instance_cache": True, **KEYS}
    one, other = (Store(f"s3://leases/lost{what.strip('/')}", options) for _ in range(2))
    with one.exclusive("embed", "crawl", wait=False) as is_ours:
        assert is_ours
        with other.exclusive("embed", "crawl", wait=False) as is_others:
            assert not is_others, "nor is it anybody's who asks"
    assert lost
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_nothing_but_the_free_lease_is_left(tmp_path: Path) -> None:
    for _ in range(3):
        with Store(tmp_path).exclusive("select", "first/datamask"):
            pass
    left = [path for path in (tmp_path / ".leases").rglob("*") if path.is_file()]
    assert [path.name for path in left] == ["0000000003.json"]
    assert json.loads(left[0].read_text())["free"]


@pytest.mark.parametrize("what", ["forgotten", "cleared away", "out of reach"])
def test_a_lease_that_cannot_be_given_back_is_told_of_only_where_somebody_waits_for_it(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever ends a crawl's work removes all leases of its shards, also that of somebody who only looked."""
    held = leases.Leases(Store(tmp_path).fs, str(tmp_path / ".leases"), is_local=True)
    overwrite = leases.Leases.overwrite

    def meets(self: leases.Leases, path: str, data: bytes) -> None:
        if what == "forgotten":
            self.forget("embed/crawl/shards")
        if what == "cleared away":
            taken = leases.Lease(self, str(Path(path).parent), 2)
            assert taken.create()
            raise FileNotFoundError(errno.ENOENT, "gone", path)  # its private file, too
        if what == "out of reach":
            raise PermissionError(errno.EACCES, "no", path)
        overwrite(self, path, data)

    with held.hold("embed/crawl/shards/a"):
        monkeypatch.setattr(leases.Leases, "overwrite", meets)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == (what == "out of reach")
    assert all("could not be given back" in line for line in told)


def test_a_lease_that_vanished_though_nobody_took_it_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: leases.Leases, path: str, data: bytes) -> None:
        raise FileNotFoundError(errno.ENOENT, "gone", path)

    with Store(tmp_path).exclusive("embed", "crawl"):
        monkeypatch.setattr(leases.Leases, "overwrite", fails)
    assert "could not be given back" in caplog.text


STEP = """
import multiprocessing, os, sys, time
from datamask_pipeline.errors import StorageError
from datamask_pipeline.storage import Store

def step(root, what):
    store = Store(root)
    old = store.current("embed", "crawl")
    print(os.getpid(), flush=True)
    try:
        if what == "begins":
            with store.exclusive("embed", "crawl"):
                store.publish_bytes("done", b"")
        else:
            while store.current("embed", "crawl") == old:
                time.sleep(0.02)
            store.point_to(old)
            store.publish_bytes("done", b"")
    except StorageError as error:
        assert "which started this step" in str(error)
        store.publish_bytes("refused", b"")

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=step, args=sys.argv[1:])
    process.start()
    process.join()
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("what", ["begins", "points"])
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_step_whose_run_was_killed_neither_begins_nor_points(
    tmp_path: Path, what: str, is_killed: bool
) -> None:
    """When its turn comes, a later run has made something else; a step whose run goes on does both."""
    (tmp_path / "step.py").write_text(STEP)
    root = tmp_path / "record"
    store = Store(root)
    builders = [
        store.begin("embed", "crawl", version=version, config={}, inputs={}) for version in ("1", "2")
    ]
    earlier = builders[0].commit([])
    with contextlib.ExitStack() as later_run:
        if what == "begins":
            later_run.enter_context(store.exclusive("embed", "crawl"))
        command = [sys.executable, str(tmp_path / "step.py"), str(root), what]
        run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert run.stdout is not None
        run.stdout.readline()
        time.sleep(0.5)  # the step waits
        if is_killed:
            run.kill()
            run.wait()
        later = builders[1].commit([])
    deadline = time.monotonic() + 60
    while not (root / "refused").exists() and not (root / "done").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    run.wait()
    assert (root / "refused").exists() == is_killed
    assert store.current("embed", "crawl") == (earlier if what == "points" and not is_killed else later)
