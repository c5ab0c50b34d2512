"""The largest cosines against a product of all pairs in float64."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from datamask_pipeline.errors import InputError
from datamask_pipeline.near_copies import coverage
from datamask_pipeline.near_copies.coverage import coverage_of, largest_cosines


def unit(seed: int, num_rows: int, num_dimensions: int = 64) -> np.ndarray:
    rows_ND = np.random.default_rng(seed).standard_normal((num_rows, num_dimensions)) + 0.3
    return rows_ND / np.linalg.norm(rows_ND, axis=1, keepdims=True)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_it_is_what_all_pairs_give(dtype: type[np.floating], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "ASKED_ROWS", 37)
    monkeypatch.setattr(coverage, "CHOSEN_ROWS", 41)
    chosen_CD, asked_MD = unit(0, 150).astype(dtype), unit(1, 200).astype(dtype)
    asked_MD[:20] = chosen_CD[100:120]
    told: list[tuple[int, int]] = []
    found_M = largest_cosines(chosen_CD, asked_MD, progress=lambda *done: told.append(done))
    chosen, asked = chosen_CD.astype(np.float64), asked_MD.astype(np.float64)
    chosen /= np.linalg.norm(chosen, axis=1, keepdims=True)
    asked /= np.linalg.norm(asked, axis=1, keepdims=True)
    best_M = (asked @ chosen.T).max(1)
    assert (found_M <= best_M + 1e-12).all()
    assert np.abs(found_M - best_M).max() < 5e-4
    assert (np.abs(found_M - best_M) < 1e-12).mean() > 0.9
    assert found_M[:20] == pytest.approx(1.0, abs=1e-12)
    assert told == [(number, 4) for number in range(1, 5)]


def test_coverage_of_a_sample_is_near_and_says_how_near() -> None:
    chosen_CD, pool_MD = unit(5, 30), unit(6, 400)
    whole = coverage_of(pool_MD, chosen_CD, num_compared=400, seed=3)
    assert (whole.num_compared, whole.error) == (400, 0.0)
    assert whole.mean == pytest.approx((pool_MD @ chosen_CD.T).max(1).mean(), abs=1e-4)
    assert whole == coverage_of(pool_MD, chosen_CD, num_compared=10_000, seed=4)
    drawn = [coverage_of(pool_MD, chosen_CD, num_compared=80, seed=seed) for seed in range(40)]
    assert {found.num_compared for found in drawn} == {80}
    off = [(found.mean - whole.mean) / found.error for found in drawn]
    assert 0.75 < np.sqrt(np.mean(np.square(off))) < 1.25


def test_squared_errors_of_all_samples_have_the_variance_of_their_means_as_mean() -> None:
    pool_MD, chosen_CD = unit(8, 4), unit(9, 3)
    drawn = [coverage_of(pool_MD, chosen_CD, num_compared=3, seed=seed) for seed in range(40)]
    errors = {found.mean: found.error for found in drawn}
    assert len(errors) == 4
    assert np.mean(np.square(list(errors.values()))) == pytest.approx(np.var(list(errors)))


def test_threads_and_blocks_change_no_bit() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from test_coverage import unit\nfrom datamask_pipeline.near_copies import coverage\n"
        "coverage.ASKED_ROWS = int(sys.argv[1])\n"
        "print(coverage.largest_cosines(unit(2, 900, 768), unit(3, 500, 768)).tobytes().hex())"
    )
    shown = {
        subprocess.run(
            [sys.executable, "-c", code, rows, str(Path(__file__).parent)],
            env=os.environ | {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads, rows in (("1", "1024"), ("3", "77"))
    }
    assert len(shown) == 1


def test_a_vector_of_another_length_is_refused() -> None:
    vectors_ND = unit(4, 10)
    with pytest.raises(InputError, match="unit norm"):
        largest_cosines(vectors_ND, 2 * vectors_ND)


@pytest.mark.parametrize(("size", "chosen", "compared"), [(9, 2, 1), (9, 0, 9), (1, 1, 9), (0, 1, 9)])
def test_too_few_to_compare_are_refused(size: int, chosen: int, compared: int) -> None:
    pool_MD = unit(0, 9).astype(np.float32)
    with pytest.raises(InputError, match="two of the pool"):
        coverage_of(pool_MD[:size], pool_MD[:chosen], num_compared=compared, seed=0)
