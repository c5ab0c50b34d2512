"""Arrays in files: what numpy would write, refused where there is no room, and with blocks of their own when mapped."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from file_limit import no_file_above

from datamask_pipeline import select_documents
from datamask_pipeline.disk import new_array, save_array, sync
from datamask_pipeline.near_copies import NearCopyIndex
from datamask_pipeline.pretraining.data import keep_tokens


@pytest.mark.parametrize(
    "values", [np.arange(7), np.eye(3, dtype=np.float16), np.zeros((0, 4)), np.array(["a", "bcd"])]
)
def test_a_saved_array_has_the_bytes_that_numpy_writes(values: np.ndarray, tmp_path: Path) -> None:
    save_array(tmp_path / "ours.npy", values)
    np.save(tmp_path / "numpys.npy", values)
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "numpys.npy").read_bytes()


def _index(folder: Path) -> None:
    NearCopyIndex.create(folder / "index", np.eye(768, dtype=np.float32)[:20], threshold=0.98)


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: save_array(folder / "a.npy", np.arange(1_500, dtype=np.uint32)),
        lambda folder: new_array(folder / "a.npy", np.uint32, (1_500,)),
        lambda folder: keep_tokens(np.arange(1_500), np.array([0, 1_500]), folder),
        lambda folder: keep_tokens(np.arange(900), np.arange(901), folder),
        _index,
    ],
    ids=["save", "map", "tokens", "offsets", "index"],
)
def test_a_want_of_room_is_raised_with_its_number(write: Callable[[Path], None], tmp_path: Path) -> None:
    with no_file_above(4_096), pytest.raises(OSError, match=os.strerror(errno.EFBIG)) as raised:
        write(tmp_path)
    assert raised.value.errno == errno.EFBIG


def test_a_new_array_is_of_zeros_and_its_room_is_taken(tmp_path: Path) -> None:
    mapped = new_array(tmp_path / "a.npy", np.float64, (500, 400))
    assert mapped.shape == (500, 400)
    assert not mapped.any()
    found = (tmp_path / "a.npy").stat()
    assert found.st_blocks * 512 >= found.st_size >= mapped.nbytes, "a file with holes ends who writes to it"
    mapped[:] = 2
    mapped.flush()
    assert (np.load(tmp_path / "a.npy") == 2).all()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files that were brought onto the disk, as they were then."""
    names: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda file: names.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)
    )
    return names


def test_every_file_of_a_folder_is_brought_onto_the_disk(synced: list[str], tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("a", "inner/b"):
        (tmp_path / name).touch()
    sync(tmp_path)
    sync(tmp_path / "a")
    assert sorted(synced) == ["a", "a", "b"]


def test_a_state_is_on_the_disk_before_it_has_its_name(synced: list[str], tmp_path: Path) -> None:
    """A cut of power left an empty one under its name, which ended every later run."""
    draws = np.random.default_rng(0)
    rows, quality = draws.standard_normal((40, 4)), draws.random(40)
    select_documents(rows, quality, diversity="DiSF", checkpoint_dir=tmp_path, checkpoint_seconds=0)
    assert {name.partition(".")[0] for name in synced} == {"selection"}
