"""Long arrays lie in files that have no name, short ones in memory, and a disk without room is told as one."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from file_limit import no_file_above

from datamask_pipeline import spill
from datamask_pipeline.spill import Room


def _anonymous() -> int:
    """Bytes of memory of this process that no file stands for."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


def test_a_long_array_takes_no_memory_of_its_own(tmp_path: Path) -> None:
    length = 4 * spill.LONG
    before = _anonymous()
    array = Room(tmp_path).array(length, np.float64)
    array[:] = 1.5
    assert _anonymous() - before < length
    assert array.sum() == 1.5 * length
    assert not [*tmp_path.iterdir()], "its file has no name: nothing stays of a process that is killed"


def test_a_want_of_room_is_raised_with_its_number(tmp_path: Path) -> None:
    with no_file_above(4_096), pytest.raises(OSError, match=os.strerror(errno.EFBIG)) as raised:
        Room(tmp_path).array(spill.LONG, np.uint8)
    assert raised.value.errno == errno.EFBIG


@pytest.mark.parametrize("long", [1, spill.LONG])
def test_some_numbers_of_an_array(long: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "LONG", long)
    places = np.array([4, 4, 0])
    assert Room().taken(np.arange(5.0), places).tolist() == [4.0, 4.0, 0.0]
    assert Room().taken(np.arange(5.0), places[:0]).tolist() == []


@pytest.mark.parametrize("long", [1, spill.LONG])
@pytest.mark.parametrize("axis", range(3))
def test_some_rows_or_columns_of_an_array(axis: int, long: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "LONG", long)
    values, places = np.arange(60).reshape(3, 4, 5), np.array([2, 0, 2])
    assert (
        Room().taken(values, places, axis) == np.stack([values.take(place, axis) for place in places], axis)
    ).all()


def test_a_file_serves_again_once_nothing_refers_to_its_array(tmp_path: Path) -> None:
    room = Room(tmp_path)
    first = room.array(spill.LONG, np.uint8)
    first[:] = 7
    part = torch.from_numpy(first[10:20])[2:]
    del first
    other = room.array(spill.LONG, np.uint8)
    other[:] = 1
    assert part.tolist() == [7] * 8, "a part of it is still in use"
    del part
    assert (room.array(spill.LONG, np.uint8) == 7).all(), "taken over as it was left"


def test_a_file_serves_an_array_that_fills_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, made = Room(tmp_path), []
    take_blocks = spill.take_blocks
    monkeypatch.setattr(spill, "take_blocks", lambda file, size: made.append(size) or take_blocks(file, size))
    for length in (8, 5, 4, 7, 3, 9, 8):
        array = room.array((length, spill.LONG), np.uint8)
        array[:] = length
        assert array.sum(dtype=np.int64) == length * length * spill.LONG
        del array
    assert [size // spill.LONG for size in made] == [8, 3, 9]
    first, second = (room.array(8 * spill.LONG, np.uint8) for _ in range(2))
    first[:], second[:] = 1, 2
    assert (first == 1).all(), "no file serves two"
    assert [size // spill.LONG for size in made] == [8, 3, 9], "both were free"
