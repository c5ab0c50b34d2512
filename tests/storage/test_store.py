"""Artefacts appear whole or not at all, on local disk and on object storage."""

import errno
import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamask_pipeline.errors import ConfigurationError, IntegrityError, StorageError, TakenOverError
from datamask_pipeline.storage import ArtefactBuilder, Ref, Store, require, storage_errors
from datamask_pipeline.storage.format import FORMAT_FILE
from datamask_pipeline.storage.leases import Lease, machine_label

ROWS = pa.table({"id": ["a", "b", "c"], "n": [1, 2, 3]})


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(tmp_path / "record" if request.param == "local" else f"memory://{uuid.uuid4().hex}")


def begin(store: Store, **changes: object) -> ArtefactBuilder:
    return store.begin("ingest", "crawl-1", version="1", config={"x": 1} | changes, inputs={"files": "abc"})


def write(builder: ArtefactBuilder, batches: list[pa.Table]) -> list[dict[str, object]]:
    return [builder.write_part("00000", batches, ROWS.schema)]


def test_an_artefact_is_read_back_and_found_again(store: Store) -> None:
    builder = begin(store)
    assert builder.finished() is None
    ref = builder.commit(write(builder, [ROWS.slice(0, 1), ROWS.slice(1)]))
    assert store.read_table(ref).to_pylist() == ROWS.to_pylist()
    assert begin(store).finished() == ref == store.current("ingest", "crawl-1")
    assert store.keys("ingest") == ["crawl-1"]
    assert [b.num_rows for b in store.iter_batches(ref, ["n"], batch_rows=2)] == [2, 1]


def test_without_a_manifest_nothing_exists(store: Store) -> None:
    builder = begin(store)
    write(builder, [ROWS])
    assert begin(store).finished() is None
    assert store.current("ingest", "crawl-1") is None


@pytest.fixture
def with_tree(tmp_path: Path) -> tuple[Store, Ref]:
    """A record in memory, which stands for any object storage, and an artefact with a folder and a file beside its parts."""
    store, folder = Store(f"memory://{uuid.uuid4().hex}"), tmp_path / "tree"
    (folder / "inner").mkdir(parents=True)
    for name in ("a.json", "inner/b.json", "inner/c.json"):
        (folder / name).write_text(name)
    builder = begin(store)
    builder.write_file("bits.npy", b"bits")
    builder.write_folder("index", folder)
    return store, builder.commit(write(builder, [ROWS]), trees=[builder.write_tree("model", folder)])


def files_below(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


def download_and_die(store: Store, ref: Ref, name: str, scratch: Path) -> None:
    """A kill once the first of several files is there."""
    get_file = type(store.fs).get_file

    def killed(fs: Any, *arguments: Any, **more: Any) -> None:
        get_file(fs, *arguments, **more)
        if files_below(scratch):
            os.kill(os.getpid(), signal.SIGKILL)

    type(store.fs).get_file = killed
    store.local_copy(ref, name, scratch)


@pytest.mark.parametrize("name", ["model", "index"])
def test_what_a_killed_download_left_is_not_taken_for_the_whole(
    with_tree: tuple[Store, Ref], tmp_path: Path, name: str
) -> None:
    (store, ref), scratch = with_tree, tmp_path / "scratch"
    child = multiprocessing.get_context("fork").Process(
        target=download_and_die, args=(store, ref, name, scratch)
    )
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert len(files_below(scratch)) == 1
    expected = {each: each for each in ("a.json", "inner/b.json", "inner/c.json")}
    for _ in range(2):
        assert files_below(store.local_copy(ref, name, scratch)) == expected
    assert store.local_copy(ref, "bits.npy", scratch).read_bytes() == b"bits"


@pytest.mark.parametrize(
    ("name", "changed"),
    [("model", "model/inner/b.json"), ("index", "index/a.json"), ("bits.npy", "bits.npy")],
)
def test_a_download_of_other_bytes_than_were_written_is_refused(
    with_tree: tuple[Store, Ref], tmp_path: Path, name: str, changed: str
) -> None:
    (store, ref), scratch = with_tree, tmp_path / "scratch"
    store.fs.pipe_file(store.file_path(ref, changed), b"others")
    with pytest.raises(IntegrityError, match=f"{changed} is lost or holds other bytes than were"):
        store.local_copy(ref, name, scratch)
    store.fs.rm(store.file_path(ref, changed))
    with pytest.raises(IntegrityError, match=f"{changed} is lost"):
        store.local_copy(ref, name, scratch)
    assert files_below(scratch) == {}


def test_a_failing_producer_leaves_nothing_visible(store: Store) -> None:
    def rows() -> Iterator[pa.Table]:
        yield ROWS
        raise RuntimeError("source went away")

    builder = begin(store)
    with pytest.raises(RuntimeError, match="went away"):
        builder.write_part("00000", rows(), ROWS.schema)
    assert builder.part("00000") is None
    assert not [path for path in store.fs.find(store.root) if path.endswith(".parquet")]


def test_a_published_part_is_kept_by_the_next_attempt(store: Store) -> None:
    first = write(begin(store), [ROWS])
    again = begin(store).write_part("00000", iter(()), ROWS.schema)
    assert [again] == first


def test_rows_must_balance(store: Store) -> None:
    builder = begin(store)
    parts = write(builder, [ROWS])
    with pytest.raises(IntegrityError, match="5 rows in, 3 kept and 1 dropped"):
        builder.commit(parts, counts={"rows_in": 5, "kept": 3, "dropped_empty": 1})
    assert store.current("ingest", "crawl-1") is None


def test_a_clock_that_is_set_meanwhile_changes_no_length_of_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = begin(store)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 3600)
    assert 0 <= store.manifest(builder.commit(write(builder, [ROWS])))["wall_seconds"] < 60


def test_another_configuration_is_another_artefact(store: Store) -> None:
    one, two = begin(store), begin(store, x=2)
    first = one.commit(write(one, [ROWS]))
    second = two.commit(write(two, [ROWS]))
    assert first.fingerprint != second.fingerprint
    assert first.content_digest == second.content_digest
    assert store.current("ingest", "crawl-1") == second
    assert begin(store).finished() == first == store.current("ingest", "crawl-1")


def test_require_names_what_is_there(store: Store) -> None:
    builder = begin(store)
    builder.commit(write(builder, [ROWS]))
    with pytest.raises(ConfigurationError, match=r"crawl-2.*there are: crawl-1"):
        require(store, "ingest", "crawl-2")


def test_a_directory_is_content(store: Store, tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "sub").mkdir(parents=True)
    (model / "sub" / "weights").write_bytes(b"1")
    builder = begin(store)
    first = builder.write_tree("model", model)
    (model / "sub" / "weights").write_bytes(b"2")
    assert builder.write_tree("model", model)["digest"] != first["digest"]


def test_a_full_disk_says_so() -> None:
    with pytest.raises(StorageError, match="free disk space"), storage_errors("part 1"):
        raise OSError(28, "No space left on device")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    ("suffix", "publish"),
    [
        (".json", lambda store: store.publish_bytes("note.json", b"{}")),
        (".parquet", lambda store: write(begin(store), [ROWS])),
    ],
)
def test_what_the_system_has_no_room_for_stays_invisible(
    suffix: str, publish: Callable[[Store], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, name = Store(tmp_path), uuid.uuid4()
    monkeypatch.setattr(uuid, "uuid4", lambda: name)
    (tmp_path / ".staging").mkdir()
    staged = tmp_path / ".staging" / f"{machine_label()}.{os.getpid()}.{name.hex}{suffix}"
    staged.symlink_to("/dev/full")
    with pytest.raises(StorageError, match=rf"no room left while writing .*\{suffix}: free disk space"):
        publish(store)
    assert {path.name for path in tmp_path.rglob("*") if not path.is_dir()} <= {FORMAT_FILE}


def test_a_limit_on_files_is_not_told_as_one_of_rights(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import resource
        from datamask_pipeline.storage import Store
        store = Store({str(tmp_path)!r})
        resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))
        store.publish_bytes("note.json", b" " * 60)
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ".json would be larger than a file may be here (File too large); raise this user's" in done.stderr


def test_what_is_written_beside_rows_and_finds_no_room_at_its_end_is_told_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a file of rejected rows, which is closed where the part could not be written."""

    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def drawn() -> Iterator[pa.Table]:
        try:
            yield ROWS
        finally:
            full()

    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(StorageError, match="no room left while writing ingest/crawl-1/"):
        begin(store).write_part("00000", drawn(), ROWS.schema)
    gc.collect()
    assert ignored == []


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EFBIG, "would be larger than a file may be here"),
        (errno.ENOSPC, "no room left while writing"),
        (errno.EROFS, "cannot write .*Read-only file system"),
    ],
)
def test_what_is_written_while_rows_are_drawn_is_refused_as_to_a_writer(
    number: int, told: str, tmp_path: Path
) -> None:
    """As a checkpoint in scratch, which is no file that anything is made from."""

    def drawn() -> Iterator[Any]:
        raise OSError(number, os.strerror(number))
        yield

    builder = begin(Store(tmp_path))
    for write_rows in (
        lambda: builder.write_part("00000", drawn(), ROWS.schema),
        lambda: builder.write_array("00000", drawn(), dtype="float16", shape=(3, 2)),
    ):
        with pytest.raises(StorageError, match=told) as caught:
            write_rows()
        assert "cannot read" not in str(caught.value)


def test_an_array_that_was_lost_and_is_written_anew_is_told_as_made(tmp_path: Path) -> None:
    """Though its part is kept, and its manifest stands."""
    for _ in range(2):
        builder = begin(Store(tmp_path))
        array = builder.write_array("00000", [np.ones((3, 2), np.float16)], dtype="float16", shape=(3, 2))
        record = builder.write_part("00000", ROWS.to_batches(), ROWS.schema, array=array)
        assert builder.location in builder.store.made
        if builder.finished() is None:
            builder.commit([record])


def test_below_the_root_directory_a_relative_place_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    with pytest.raises(
        ConfigurationError, match=r"there is no record at no-such-record \(folder /no-such-record\)"
    ):
        Store("no-such-record").refuse_missing()


def test_a_killed_writer_is_swept_and_its_part_never_shows(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import os, signal, pyarrow as pa
        from datamask_pipeline.storage import Store
        rows = pa.table({{"id": ["a", "b", "c"], "n": [1, 2, 3]}})
        def batches():
            yield rows
            os.kill(os.getpid(), signal.SIGKILL)
        builder = Store({str(tmp_path)!r}).begin("ingest", "crawl-1", version="1", config={{"x": 1}},
            inputs={{"files": "abc"}})
        builder.write_part("00000", batches(), rows.schema)
    """)
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode == -signal.SIGKILL
    store = Store(tmp_path)
    assert begin(store).part("00000") is None
    assert len(os.listdir(tmp_path / ".staging")) == 1
    assert store.sweep() == 1
    assert os.listdir(tmp_path / ".staging") == []


def test_a_file_is_published_again_as_any_other_is(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an object store, too, where the server copies it: of this format, and by nobody whose work was taken over."""
    source, target = "embed/crawl/0/00000.npy", "embed/crawl/1/00000.npy"
    store.fs.makedirs(f"{store.root}/embed/crawl/0")
    store.fs.pipe_file(f"{store.root}/{source}", b"vectors")
    store.copy_file(source, target)
    assert store.fs.cat_file(f"{store.root}/{target}") == b"vectors"
    assert store.fs.exists(f"{store.root}/{FORMAT_FILE}")
    with pytest.raises(IntegrityError, match=r"embed/crawl/2/00000\.npy is lost; run its stage again"):
        store.copy_file("embed/crawl/2/00000.npy", "embed/crawl/3/00000.npy")

    def taken_over(lease: Lease) -> None:
        raise lease.taken_over()

    monkeypatch.setattr(Lease, "check", taken_over)
    with pytest.raises(TakenOverError), store.exclusive("embed", "crawl"):
        store.copy_file(source, "embed/crawl/3/00000.npy")
    assert not store.fs.exists(f"{store.root}/embed/crawl/3/00000.npy")


def test_what_is_staged_for_an_object_store_lies_in_the_users_own_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in a folder that all users of a machine share, and not in that of another record."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    places = set[Path]()
    for name in ("one", "other"):
        with Store(f"memory://{tmp_path.name}-{name}").staged("a/b") as private:
            private.write_bytes(b"1")
            places.add(private.parent)
    assert len(places) == 2
    assert all(place.is_relative_to(tmp_path / "cache") for place in places)
    assert files_below(tmp_path) == {}


def test_a_damaged_manifest_is_an_error(tmp_path: Path) -> None:
    store = Store(tmp_path)
    builder = begin(store)
    ref = builder.commit(write(builder, [ROWS]))
    manifest = tmp_path / ref.location / "manifest.json"
    assert json.loads(manifest.read_text())["rows"] == 3
    manifest.write_text("{")
    with pytest.raises(IntegrityError, match="not JSON"):
        store.manifest(ref)


def test_checkpoints_of_work_that_was_given_up_are_swept(tmp_path: Path) -> None:
    """What lies before the current artefact of its stage and key is over; what has none is gone on with."""
    store = Store(tmp_path)
    given_up = begin(store, x=2).scratch() / "windows" / "window-0"
    unfinished = store.begin("ingest", "crawl-2", version="1", config={}, inputs={}).scratch() / "window-0"
    busy = store.begin("embed", "crawl-1", version="1", config={}, inputs={}).scratch() / "window-0"
    for path in (given_up, unfinished, busy):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"1")
        os.utime(path.parent, (1, 1))
        os.utime(path, (1, 1))
    os.utime(given_up.parent.parent, (1, 1))
    for builder in (begin(store), store.begin("embed", "crawl-1", version="2", config={}, inputs={})):
        builder.commit(write(builder, [ROWS]))
    newer = begin(store, x=3).scratch() / "window-0"
    newer.write_bytes(b"1")
    os.utime(newer, ns=(2**62, 2**62))
    with store.exclusive("embed", "crawl-1"):
        assert store.sweep() == 1
    assert [path.exists() for path in (given_up, unfinished, busy, newer)] == [False, True, True, True]
    assert store.sweep() == 1, "nobody is at work on the embedding any more"
    assert not busy.exists()
    assert store.sweep() == 0


def test_checkpoints_of_a_finished_artefact_are_swept_whatever_the_clocks_say(tmp_path: Path) -> None:
    """Another machine, whose clock is behind, has finished what this one had begun too."""
    store = Store(tmp_path)
    builder = begin(store)
    ref = builder.commit(write(builder, [ROWS]))
    checkpoint = store.scratch(ref.location) / "windows" / "window-0"
    checkpoint.parent.mkdir()
    checkpoint.write_bytes(b"1")
    os.utime(checkpoint, ns=(2**62, 2**62))
    assert store.sweep() == 1
    assert not checkpoint.exists()
