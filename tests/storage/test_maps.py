"""Arrays in a file: of zeros, to be written to, and refused where the disk has no room."""

from pathlib import Path

import numpy as np
import pytest

from datamask_pipeline.errors import StorageError
from datamask_pipeline.storage import new_map


@pytest.mark.parametrize("num_rows", [0, 3])
def test_a_new_map_is_zeros_that_stay_when_written(num_rows: int, tmp_path: Path) -> None:
    found = new_map(tmp_path / "folder" / "rows", np.float16, (num_rows, 4))
    assert found.shape == (num_rows, 4)
    assert not found.any()
    found[:] = 2
    found.flush()
    assert (
        np.fromfile(tmp_path / "folder" / "rows", np.float16)[: num_rows * 4].tolist() == [2.0] * num_rows * 4
    )


def test_more_than_a_disk_holds_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="rows"):
        new_map(tmp_path / "rows", np.float64, (1 << 45, 64))
