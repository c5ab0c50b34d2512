"""Arrays beside parts: mapped as they were written, part of what the artefact is, and never half there."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from datamask_pipeline.errors import IntegrityError, StorageError
from datamask_pipeline.storage import ArtefactBuilder, Ref, Store, array_files, open_array

ROWS = pa.table({"id": ["a", "b", "c"]})
VECTORS = np.arange(12, dtype=np.float16).reshape(3, 4)


def begin(store: Store, version: str = "1") -> ArtefactBuilder:
    return store.begin("embed", "crawl", version=version, config={}, inputs={})


def made(store: Store, vectors: np.ndarray = VECTORS, version: str = "1") -> Ref:
    builder = begin(store, version)
    blocks = [vectors[:2], vectors[2:]]
    array = builder.write_array("00000", blocks, dtype=str(vectors.dtype), shape=vectors.shape)
    return builder.commit([builder.write_part("00000", [ROWS], ROWS.schema, array=array)])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_an_array_is_mapped_as_it_was_written(store: Store) -> None:
    ref = made(store)
    array = open_array(store, ref, "00000")
    assert isinstance(array, np.memmap)
    assert not array.flags.writeable
    assert (array.dtype, array.tolist()) == (VECTORS.dtype, VECTORS.tolist())
    (path,) = array_files(store, ref).values()
    assert np.load(path, mmap_mode="r").tolist() == VECTORS.tolist()


def test_its_bits_stand_in_the_content_digest(store: Store) -> None:
    plain = made(store)
    negative = VECTORS.copy()
    negative[0, 0] = -0.0
    assert made(store, negative, "2").content_digest != plain.content_digest, "zero and minus zero differ"
    assert made(store, VECTORS.astype(np.float32), "3").content_digest != plain.content_digest
    assert made(store, VECTORS.copy(), "4").content_digest == plain.content_digest


def test_an_array_without_rows_is_one(store: Store) -> None:
    builder = begin(store)
    array = builder.write_array("none", [], dtype="float16", shape=(0, 768))
    part = builder.write_part("none", [ROWS.slice(0, 0)], ROWS.schema, array=array)
    assert open_array(store, builder.commit([part]), "none").shape == (0, 768)


@pytest.mark.parametrize(
    "blocks", [[VECTORS[:2]], [VECTORS, VECTORS], [VECTORS[:, :2]], [VECTORS.astype(float)]]
)
def test_blocks_that_do_not_make_up_the_array_leave_nothing_behind(
    blocks: list[np.ndarray], store: Store, tmp_path: Path
) -> None:
    with pytest.raises(IntegrityError, match=r"array of .*3"):
        begin(store).write_array("00000", blocks, dtype="float16", shape=VECTORS.shape)
    assert list(tmp_path.rglob("*.npy")) == []


KILLED = """
import os, signal, sys
import numpy as np, pyarrow as pa
from datamask_pipeline.storage import Store

rows = pa.table({"id": ["a", "b", "c"]})
vectors = np.arange(12, dtype=np.float16).reshape(3, 4)
builder = Store(sys.argv[1]).begin("embed", "crawl", version="1", config={}, inputs={})
def blocks():
    yield vectors[:2]
    if sys.argv[2] == "in the array":
        os.kill(os.getpid(), signal.SIGKILL)
    yield vectors[2:]
array = builder.write_array("00000", blocks(), dtype="float16", shape=vectors.shape)
def batches():
    yield rows
    os.kill(os.getpid(), signal.SIGKILL)
builder.write_part("00000", batches(), rows.schema, array=array)
"""


@pytest.mark.parametrize("moment", ["in the array", "between the files"])
def test_a_kill_leaves_no_part(moment: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), moment], check=False)
    assert done.returncode == -signal.SIGKILL
    store = Store(tmp_path)
    assert begin(store).part("00000") is None
    assert begin(store).finished() is None
    assert store.sweep() == 1
    again, other = made(store), made(Store(tmp_path / "other"))
    assert again == other


def test_a_part_whose_array_was_lost_or_cut_is_not_whole(store: Store, tmp_path: Path) -> None:
    ref = made(store)
    builder = begin(store)
    (path,) = array_files(store, ref).values()
    whole = path.read_bytes()
    assert builder.part("00000") is not None
    path.write_bytes(whole[:-1])
    assert builder.part("00000") is None
    with pytest.raises(IntegrityError, match=r"00000\.npy has 151 bytes where 152 were written.*stage again"):
        open_array(store, ref, "00000")
    path.unlink()
    assert builder.part("00000") is None
    with pytest.raises(IntegrityError, match=r"00000\.npy is lost.*stage again"):
        array_files(store, ref)


def test_a_part_of_an_earlier_version_says_so(store: Store) -> None:
    builder = begin(store)
    ref = builder.commit([builder.write_part("00000", [ROWS], ROWS.schema)])
    with pytest.raises(IntegrityError, match=r"no array beside it.*run stage 'embed' again"):
        open_array(store, ref, "00000")


class TestARemoteRecord:
    """`memory://` stands for any object storage: what is there has to be copied before it can be mapped."""

    @pytest.fixture
    def remote(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        return Store(f"memory://{tmp_path.name}-{os.getpid()}")

    def test_an_array_is_copied_once(self, remote: Store, tmp_path: Path) -> None:
        ref = made(remote)
        assert open_array(remote, ref, "00000").tolist() == VECTORS.tolist()
        remote.fs.rm(remote.file_path(ref, "00000.npy"))
        assert open_array(remote, ref, "00000").tolist() == VECTORS.tolist()
        copies = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
        assert [path.suffix for path in copies] == [".npy"]

    def test_a_copy_with_other_bits_is_refused(self, remote: Store, tmp_path: Path) -> None:
        ref = made(remote)
        path = remote.file_path(ref, "00000.npy")
        whole = remote.fs.cat_file(path)
        remote.fs.pipe_file(path, whole[:-1] + b"\x7f")
        with pytest.raises(IntegrityError, match="other numbers than were written"):
            open_array(remote, ref, "00000")
        remote.fs.pipe_file(path, whole[:-1])
        with pytest.raises(IntegrityError, match="cannot map"):
            open_array(remote, ref, "00000")
        remote.fs.rm(path)
        with pytest.raises(IntegrityError, match="is lost"):
            open_array(remote, ref, "00000")
        assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []

    def test_a_cache_that_cannot_be_written_is_named(
        self, remote: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ref = made(remote)
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        with pytest.raises(StorageError, match="cannot write"):
            open_array(remote, ref, "00000")
