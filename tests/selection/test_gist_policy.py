"""GIST as a policy: the published sweep by brute force, half of the best mask at least, exact budgets, lots and refusals."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from datamask_pipeline import Given, select_documents
from datamask_pipeline.errors import ConfigurationError
from datamask_pipeline.selection import gist
from datamask_pipeline.selection.result import SelectionResult

Rows = NDArray[np.float32]


def block(num_rows: int, dim: int, seed: int) -> tuple[Rows, NDArray[np.float64]]:
    draws = np.random.default_rng(seed)
    rows = draws.standard_normal((max(2, num_rows // 4), dim))[
        draws.integers(0, max(2, num_rows // 4), num_rows)
    ]
    rows = (rows + 0.5 * draws.standard_normal((num_rows, dim))).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), draws.random(num_rows)


def chosen(rows: Rows, quality: Any, **settings: Any) -> SelectionResult:
    return select_documents(rows, quality, policy="gist", **{"normalisation": "none", **settings})


def distances(rows: Rows) -> NDArray[np.float64]:
    exact = rows.astype(np.float64)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    found: NDArray[np.float64] = np.linalg.norm(exact[:, None] - exact[None], axis=2)
    return found


def smallest(apart: NDArray[np.float64], index: Any) -> float:
    picked = list(index)
    return min(apart[a, b] for a, b in itertools.combinations(picked, 2))


def largest(count: int) -> float:
    return math.sqrt(2 * count / (count - 1))


def worth(apart: NDArray[np.float64], quality: NDArray[np.float64], lamb: float, index: Any) -> float:
    picked = list(index)
    share = smallest(apart, picked) / largest(len(picked))
    return float(lamb * quality[picked].mean() + (1 - lamb) * share)


def sweep(
    apart: NDArray[np.float64],
    quality: NDArray[np.float64],
    lamb: float,
    limits: dict[str, int],
    groups: NDArray[Any],
    step: float,
) -> tuple[float, set[int]]:
    """Every threshold from the first document on, as it is published; filled up. Then some around the best one so far."""
    total, order = sum(limits.values()), np.argsort(-quality).tolist()

    def filled_up(threshold: float) -> tuple[float, set[int], float]:
        taken: list[int] = []
        for least in (threshold, 0.0):
            for row in order:
                left = sum(groups[taken] == groups[row]) < limits[groups[row]]
                if left and row not in taken and all(apart[row, taken] >= least):
                    taken.append(row)
        return worth(apart, quality, lamb, taken), set(taken), threshold

    thresholds, threshold = [0.0], step * largest(total) / 2
    while threshold <= largest(total):
        thresholds.append(threshold)
        threshold *= 1 + step
    best = max(map(filled_up, thresholds), key=lambda one: one[0])
    for power in (1 / 2, 1 / 4, 1 / 8):
        for factor in ((1 + step) ** -power, (1 + step) ** power):
            best = max(best, filled_up(best[2] * factor), key=lambda one: one[0])
    return best[:2]


@pytest.mark.parametrize("quotas", [None, {"a": 0.5, "b": 0.25, "c": 0.25}])
@pytest.mark.parametrize("lamb", [0.0, 0.3, 0.8])
def test_the_mask_is_the_best_of_the_published_sweep_and_of_thresholds_around_it(
    lamb: float, quotas: dict[str, float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks, slices and tiles of few documents."""
    for name, size in (("BLOCK_ROWS", 16), ("SLICE_ROWS", 4), ("TILE_ROWS", 8)):
        monkeypatch.setattr(gist, name, size)
    ends = []
    for seed in range(6):
        rows, quality = block(90, 4, seed)
        groups = np.random.default_rng(seed).choice(list("abc"), 90)
        limits = {"a": 6, "b": 3, "c": 3} if quotas else {"all": 12}
        named: dict[str, Any] = {"quotas": quotas, "groups": groups.tolist()} if quotas else {}
        result = chosen(rows, quality, lamb=lamb, num_documents=12, distance_step=0.2, **named)
        of = groups if quotas else np.full(90, "all")
        value, mask = sweep(distances(rows), quality, lamb, limits, of, 0.2)
        assert set(np.flatnonzero(result.mask)) == mask
        told = result.record["learner"]
        assert told["value"] == pytest.approx(value, abs=1e-5)
        assert told["smallest_distance"] == pytest.approx(smallest(distances(rows), mask), abs=1e-5)
        ends.append(told["threshold"])
    assert lamb == 0.8 or max(ends) > 0


@pytest.mark.parametrize("lamb", [0.0, 0.2, 0.5, 0.9])
def test_no_mask_is_worth_twice_as_much(lamb: float) -> None:
    step = 0.05
    for seed in range(10):
        rows, quality = block(10, 2 + seed % 3, seed)
        count, apart = 2 + seed % 4, distances(rows)
        result = chosen(rows, quality, lamb=lamb, num_documents=count, distance_step=step)
        found = worth(apart, quality, lamb, np.flatnonzero(result.mask))
        assert result.record["learner"]["value"] == pytest.approx(found, abs=1e-4)
        for other in itertools.combinations(range(10), count):
            share = smallest(apart, other) / largest(count)
            lost = (1 - lamb) * share * (1 if share < step else 1 - 1 / (2 + 2 * step))
            best = worth(apart, quality, lamb, other)
            assert found >= best - lost - 1e-5
            assert found >= best / (2 + 2 * step) - 1e-5 or share < step


def test_the_value_is_of_normalised_quality() -> None:
    rows, quality = block(80, 6, 1)
    result = chosen(rows, 100 * quality, lamb=0.4, ratio=0.2, normalisation="affine")
    share = smallest(distances(rows), np.flatnonzero(result.mask)) / largest(16)
    told = result.record["learner"]["value"]
    assert told == pytest.approx(0.4 * result.objective.quality + 0.6 * share, abs=1e-5)


@pytest.mark.parametrize("copies", [1, 3])
def test_sizes_and_quotas_are_exact_over_seeds(copies: int) -> None:
    """Of copies too few lie apart: the budget is filled up all the same."""
    for seed in range(12):
        rows, quality = block(60, 3, seed)
        rows, quality = np.repeat(rows[: 60 // copies], copies, axis=0), np.round(quality, 1)
        groups = np.array(list("aabbbc") * 10)
        settings: dict[str, Any] = {"seed": seed, "lamb": 0.2, "num_documents": 31}
        assert chosen(rows, quality, **settings).mask.sum() == 31
        shares = {"a": 0.5, "b": 0.5, "c": 0.0}
        mask = chosen(
            rows, quality, groups=groups.tolist(), quotas=shares, **settings | {"num_documents": 30}
        ).mask
        assert [int(mask[groups == name].sum()) for name in "abc"] == [15, 15, 0]


def test_threads_change_no_mask() -> None:
    rows, quality = block(3000, 24, 0)
    found = [chosen(rows, quality, lamb=0.3, num_workers=workers) for workers in (1, 3)]
    assert found[0].mask.tobytes() == found[1].mask.tobytes()
    assert found[0].record["learner"] == found[1].record["learner"]


def test_equal_documents_are_taken_by_lot() -> None:
    rows = np.repeat(block(4, 8, 2)[0], 5, axis=0)
    masks = [chosen(rows, np.zeros(20), lamb=0.0, num_documents=4, seed=seed).mask for seed in range(40)]
    counts = np.sum(masks, axis=0)
    assert counts.reshape(4, 5).sum(1).tolist() == [40, 40, 40, 40], "one of each"
    assert (counts > 0).all()


def test_quality_alone_and_the_whole_block_are_what_they_are() -> None:
    rows, quality = block(50, 8, 3)
    tied = np.round(quality, 1)
    for settings in ({"ratio": 0.3, "lamb": 1.0, "seed": 4}, {"ratio": 1.0}):
        expected = select_documents(rows, tied, policy="quality_topk", normalisation="none", **settings).mask
        assert (chosen(rows, tied, **settings).mask == expected).all()


def test_copies_lie_at_no_distance_whatever_their_norms() -> None:
    """Vectors of two bytes a number, whose norms are nearly 1, are taken as they are by metrics."""
    rows = (0.9993 * np.repeat(block(10, 16, 5)[0], 2, axis=0)).astype(np.float16)
    result = chosen(rows, np.arange(20.0), lamb=0.5, num_documents=12)
    assert result.record["learner"]["smallest_distance"] == 0
    apart = chosen(rows, np.arange(20.0), lamb=0.0, num_documents=10)
    assert apart.mask.reshape(10, 2).sum(1).tolist() == [1] * 10


def test_what_it_cannot_do_is_refused_with_what_to_choose_instead() -> None:
    rows, quality = block(40, 8, 0)
    with pytest.raises(ConfigurationError, match="give ratio or num_documents, not num_tokens"):
        chosen(rows, quality, num_tokens=100, token_counts=np.full(40, 10))
    with pytest.raises(ConfigurationError, match="'gist' cannot choose beside what is held; use datamask"):
        chosen(rows[10:], quality[10:], given=Given.of(rows[:10], quality[:10]))
    with pytest.raises(ConfigurationError, match="distance_step"):
        chosen(rows, quality, distance_step=0.0)
