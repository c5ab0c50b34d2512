"""Small blocks with known structure."""

import numpy as np
import pytest
from numpy.typing import NDArray

Block = tuple[NDArray[np.float32], NDArray[np.float64]]


@pytest.fixture
def clustered() -> Block:
    """400 unit vectors of 16 dimensions around 8 centres of unequal size, with a random score."""
    draws = np.random.default_rng(0)
    centres = draws.standard_normal((8, 16))
    sizes = np.array([160, 90, 50, 40, 25, 15, 12, 8])
    rows = np.repeat(centres, sizes, axis=0) + 0.45 * draws.standard_normal((400, 16)) + 0.6
    order = draws.permutation(400)
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True))[order]
    return rows.astype(np.float32), draws.random(400)
