"""What the model of coverage tells of additions, removals and exchanges is what values tell, through any of them."""

import numpy as np
from numpy.typing import NDArray

from datamask_pipeline.diversity.coverage_swaps import CoverageSwaps


def covered(similar_RT: NDArray[np.float32], inside_T: NDArray[np.bool_]) -> float:
    return float(similar_RT[:, inside_T].astype(np.float64).max(1, initial=0).mean())


def changed(
    similar_RT: NDArray[np.float32], inside_T: NDArray[np.bool_], into: int | None, out: int | None
) -> float:
    other_T = inside_T.copy()
    if out is not None:
        other_T[out] = False
    if into is not None:
        other_T[into] = True
    return covered(similar_RT, other_T) - covered(similar_RT, inside_T)


def test_every_change_is_told_exactly_through_additions_and_exchanges() -> None:
    draws = np.random.default_rng(0)
    for turn in range(40):
        num_references, size = (int(number) for number in draws.integers(2, 20, 2))
        similar_RT = np.maximum(draws.standard_normal((num_references, size)), 0).astype(np.float32)
        if turn % 3 == 0:
            similar_RT[:, 0] = similar_RT[:, -1]  # copies
        inside_T = draws.permutation(size) < draws.integers(0, size)
        model = CoverageSwaps(
            similar_RT, similar_RT.T.copy(), np.flatnonzero(inside_T), scale=1 / num_references
        )
        for _ in range(6):
            outside, inside = np.flatnonzero(~inside_T), np.flatnonzero(inside_T)
            added = [changed(similar_RT, inside_T, into, None) for into in outside]
            removed = [changed(similar_RT, inside_T, None, out) for out in inside]
            np.testing.assert_allclose(model.additions()[outside], added, atol=1e-6)
            np.testing.assert_allclose(model.removals(inside), removed, atol=1e-6)
            rows, columns = draws.permutation(outside)[:4], draws.permutation(inside)[:4]
            exchanged = [[changed(similar_RT, inside_T, into, out) for out in columns] for into in rows]
            if len(rows) and len(columns):
                np.testing.assert_allclose(model.table(rows, columns), exchanged, atol=1e-6)
            if len(outside) and len(inside) and draws.random() < 0.7:
                into, out = int(draws.choice(outside)), int(draws.choice(inside))
                model.swap(into, out)
                inside_T[[into, out]] = True, False
            elif len(outside):
                into = int(draws.choice(outside))
                model.add(into)
                inside_T[into] = True
