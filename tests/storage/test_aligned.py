"""Rows asked for by their numbers are those of a look-up in a dictionary, however row groups and questions are cut."""

import random
import resource
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from datamask_pipeline.errors import IntegrityError
from datamask_pipeline.storage import Ref, Store
from datamask_pipeline.storage.aligned import Aligned

COLUMNS = pa.schema([("position", pa.int64()), ("id", pa.string())])


def write(store: Store, numbers: list[int], draw: random.Random) -> Ref:
    """A table of two parts, in row groups of a few rows."""
    builder, parts = store.begin("pool", "first", version="1", config={}, inputs={}), []
    half = len(numbers) // 2
    for name, part in (("00000", numbers[:half]), ("00001", numbers[half:])):
        cuts = sorted(draw.choices(range(len(part) + 1), k=9))
        batches = [
            pa.RecordBatch.from_pylist([{"position": n, "id": f"d{n}"} for n in part[a:b]], schema=COLUMNS)
            for a, b in zip([0, *cuts], [*cuts, len(part)], strict=True)
        ]
        parts.append(builder.write_part(name, batches, COLUMNS))
    return builder.commit(parts)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("by_position", [True, False])
def test_rows_are_those_of_a_dictionary(tmp_path: Path, seed: int, by_position: bool) -> None:
    draw = random.Random(seed)
    numbers = sorted(draw.sample(range(500), 300)) if by_position else list(range(7, 307))
    store = Store(tmp_path)
    table = Aligned(store, write(store, numbers, draw), first=None if by_position else 7, groups=1 + seed % 3)
    for _ in range(30):
        first = draw.randrange(520)
        asked = sorted(draw.sample(range(first, first + 80), draw.randint(0, 80)))
        if seed % 2:  # a range, as a window of documents is
            asked = list(range(first, first + 60))
        found, is_found = table.at(np.array(asked, np.int64), ["id", "position"])
        assert is_found.tolist() == [number in numbers for number in asked]
        assert found["position"].to_pylist() == [number for number in asked if number in numbers]
        assert found["id"].to_pylist() == [f"d{number}" for number in asked if number in numbers]


@pytest.mark.parametrize("swapped", [(0, 200), (10, 11)])
def test_positions_that_do_not_ascend_are_told(tmp_path: Path, swapped: tuple[int, int]) -> None:
    numbers, store = list(range(300)), Store(tmp_path)
    a, b = swapped
    numbers[a], numbers[b] = numbers[b], numbers[a]
    ref = write(store, numbers, random.Random(0))
    with pytest.raises(IntegrityError, match="does not ascend"):
        Aligned(store, ref).at(np.arange(300), ["id"])


@pytest.mark.parametrize("by_position", [True, False])
def test_a_table_may_have_more_parts_than_a_process_may_open(tmp_path: Path, by_position: bool) -> None:
    store, num_parts = Store(tmp_path), 80
    builder = store.begin("pool", "first", version="1", config={}, inputs={})
    parts = [
        builder.write_part(
            f"{number:05d}",
            [pa.RecordBatch.from_pylist([{"position": number, "id": f"d{number}"}], schema=COLUMNS)],
            COLUMNS,
        )
        for number in range(num_parts)
    ]
    ref = builder.commit(parts)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    num_open = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (num_open + num_parts // 2, limits[1]))
    try:
        table = Aligned(store, ref, first=None if by_position else 0)
        found, is_found = table.at(np.arange(num_parts), ["id"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert is_found.all()
    assert found["id"].to_pylist() == [f"d{number}" for number in range(num_parts)]
