"""How many of few vectors stand for themselves, against a plain loop over all pairs."""

import numpy as np
import pytest

from datamask_pipeline.errors import InputError
from datamask_pipeline.near_copies.exact import BLOCK_ROWS, num_standing
from datamask_pipeline.near_copies.vectors import cosines


def drawn(size: int, dim: int, kinds: int, noise: float, seed: int) -> np.ndarray:
    draws = np.random.default_rng(seed)
    centres = draws.standard_normal((kinds, dim))
    rows = centres[draws.integers(kinds, size=size)] + noise * draws.standard_normal((size, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16)


@pytest.mark.parametrize("threshold", [0.9, 0.98])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_number_is_that_of_a_loop(threshold: float, seed: int) -> None:
    rows = drawn(BLOCK_ROWS + 300, 24, 150, 0.15, seed)
    standing: list[int] = []
    for row in range(len(rows)):
        others = np.array(standing, np.int64)
        if not (cosines(rows, np.full(len(others), row), others) >= threshold).any():
            standing.append(row)
    assert len(standing) < len(rows)
    assert num_standing(rows, threshold) == len(standing)


def test_what_lies_at_the_threshold_is_a_copy_whatever_the_norms_that_are_stored() -> None:
    other = np.array([0.98, np.sqrt(1 - 0.98**2)])
    for scale in (0.9995, 1.0, 1.0005):
        rows = np.stack([[1.0, 0.0], scale * other])
        cosine = float(cosines(rows, np.array([1]), np.array([0]))[0])
        assert num_standing(rows, cosine) == 1
        assert num_standing(rows, float(np.nextafter(cosine, 1))) == 2


def test_none_and_one() -> None:
    assert num_standing(np.empty((0, 3), np.float32), 0.98) == 0
    assert num_standing(np.eye(3, dtype=np.float32), 0.98) == 3
    with pytest.raises(InputError, match="unit norm"):
        num_standing(2 * np.eye(3, dtype=np.float32), 0.98)
