"""Intervals hold the truth as often as they say, planted doses are found, and no difference is not called one."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from datamask_pipeline.experiment.judge import (
    Bootstrap,
    Difference,
    benchmarks_of,
    random_coverage,
    smallest_dose,
    without_largest_mover,
)
from datamask_pipeline.schema import CURATED, HELD_OUT

ITEMS = {"piqa": 60, "mmlu": 90, HELD_OUT: 30}
BYTES = np.random.default_rng(0).integers(5, 40, sum(ITEMS.values()))


def made(
    generator: np.random.Generator,
    arms: int,
    draws: int = 20,
    effect: float = 0.0,
    of_draw: float = 0.02,
    of_item: float = 0.0,
) -> NDArray[np.float32]:
    """Bits of every draw, arm and item: common to all, a draw's own luck, and the last arm's effect, on items unlike."""
    common = 2.5 + generator.normal(0, 0.5, len(BYTES))
    luck = generator.normal(0, of_draw, (draws, arms, 1)) + generator.normal(
        0, 0.1, (draws, arms, len(BYTES))
    )
    shift = np.zeros((1, arms, len(BYTES)))
    shift[0, -1] = effect + generator.normal(0, of_item, len(BYTES))
    return ((common + luck + shift) * BYTES).astype(np.float32)


def bootstrap(bits: NDArray[np.float32], num_samples: int = 200) -> Bootstrap:
    names = [f"arm {place}" for place in range(bits.shape[1])]
    return Bootstrap.of(names, bits, BYTES, ITEMS, seed=1, num_samples=num_samples)


def test_the_difference_is_the_mean_over_tasks_of_all_bits_over_all_bytes() -> None:
    bits = made(np.random.default_rng(1), 2, draws=4)
    found = bootstrap(bits).difference("arm 1", "arm 0", ["piqa", "mmlu"])
    one, other = (
        ((bits[:, 1, of] - bits[:, 0, of]).astype(np.float64).sum(axis=1) / BYTES[of].sum()).mean()
        for of in (slice(0, 60), slice(60, 150))
    )
    assert found.difference == pytest.approx((one + other) / 2, abs=1e-6)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("draws", "of_draw", "of_item"), [(20, 0.02, 0.0), (8, 0.0, 0.0), (12, 0.02, 0.3)])
def test_intervals_hold_the_truth_as_often_as_they_say(draws: int, of_draw: float, of_item: float) -> None:
    """Independent experiments in which draws, neither, or questions too have luck of their own."""
    generator, held, number = np.random.default_rng(2), 0, 250
    for _ in range(number):
        bits = made(generator, 2, draws=draws, effect=0.03, of_draw=of_draw, of_item=of_item)
        found = bootstrap(bits).difference("arm 1", "arm 0", ["piqa", "mmlu"])
        held += abs(found.difference - 0.03) <= found.half_width
    assert abs(held / number - 0.95) <= 1.96 * math.sqrt(0.95 * 0.05 / number)


def test_intervals_over_questions_alone_would_not() -> None:
    """Why draws are resampled: with one draw's luck, an interval over questions is far too narrow."""
    generator, held, number = np.random.default_rng(3), 0, 200
    for _ in range(number):
        bits = made(generator, 2, draws=1, of_draw=0.05)[0]
        delta = (bits[1] - bits[0])[:150] / BYTES[:150]
        held += abs(delta.mean()) <= 1.96 * delta.std(ddof=1) / math.sqrt(len(delta))
    assert held / number < 0.6


def test_what_is_detectable_is_found_as_often_as_it_says() -> None:
    generator, found, number = np.random.default_rng(4), 0, 120
    detectable = np.mean(
        [
            bootstrap(made(generator, 2)).difference("arm 1", "arm 0", ["piqa", "mmlu"]).detectable
            for _ in range(20)
        ]
    )
    for _ in range(number):
        bits = made(generator, 2, effect=float(detectable))
        found += bootstrap(bits).difference("arm 1", "arm 0", ["piqa", "mmlu"]).is_clear
    assert 0.68 <= found / number <= 0.92


def test_random_against_random_is_within_binomial_error() -> None:
    sampled = bootstrap(made(np.random.default_rng(5), 12))
    coverage = random_coverage(sampled, list(sampled.arms), num_pairs=200, seed=0)
    assert coverage.pairs == 200
    assert coverage.error == pytest.approx(0.0302, abs=1e-4)
    assert coverage.share >= 0.9


def test_random_subsets_that_do_not_differ_at_all_are_not_told_apart() -> None:
    bits = made(np.random.default_rng(6), 8)
    bits[:] = bits[:, :1]
    sampled = bootstrap(bits)
    coverage = random_coverage(sampled, list(sampled.arms), num_pairs=20, seed=0)
    assert (coverage.held, coverage.is_sound) == (20, True)


def test_arms_that_do_not_differ_have_no_interval() -> None:
    bits = made(np.random.default_rng(6), 2)
    bits[:, 1] = bits[:, 0]
    found = bootstrap(bits).difference("arm 1", "arm 0", ["piqa"])
    assert (found.difference, found.is_clear) == (0.0, False)
    assert math.isnan(found.half_width)
    assert math.isnan(found.p)


def test_the_largest_mover_is_left_out() -> None:
    bits = made(np.random.default_rng(7), 2)
    bits[:, 1, :60] += 0.5 * BYTES[:60]
    found = without_largest_mover(bootstrap(bits), "arm 1", "arm 0")
    assert found is not None
    name, without = found
    assert name == "piqa"
    assert abs(without.difference) < 0.1
    assert benchmarks_of(bootstrap(bits)) == ["piqa", "mmlu"]
    curated = Bootstrap.of(["one", "other"], bits, BYTES, {**ITEMS, HELD_OUT: 20, CURATED: 10}, seed=1)
    assert benchmarks_of(curated) == ["piqa", "mmlu"]


def test_one_benchmark_cannot_be_left_out() -> None:
    bits = made(np.random.default_rng(8), 2)[:, :, :60]
    one = Bootstrap.of(["arm 0", "arm 1"], bits, BYTES[:60], {"piqa": 60}, seed=1, num_samples=50)
    assert without_largest_mover(one, "arm 1", "arm 0") is None


def test_the_smallest_dose_is_one_from_which_on_all_are_found() -> None:
    worse, unclear, better = (Difference(d, 0.01, 0.02, 0.0) for d in (0.05, 0.005, -0.05))
    assert smallest_dose({0.02: unclear, 0.05: worse, 0.25: worse, 0.1: worse}) == 0.05
    assert smallest_dose({0.02: worse, 0.05: unclear, 0.1: worse}) == 0.1
    assert smallest_dose({0.02: worse, 0.1: better}) is None
    assert smallest_dose({}) is None


@pytest.mark.parametrize("seed", range(8))
def test_no_digit_hangs_on_the_order_of_arms(seed: int) -> None:
    draws = np.random.default_rng(seed)
    bits = draws.normal(300, 40, size=(8, 7, len(BYTES))).astype(np.float32)
    names, order = [f"arm {arm}" for arm in range(7)], draws.permutation(7)
    made_of = [
        Bootstrap.of([names[arm] for arm in places], bits[:, places], BYTES, ITEMS, seed=1, num_samples=100)
        for places in (np.arange(7), order)
    ]
    for name in names[1:]:
        one, other = (boot.difference(name, names[0], list(ITEMS)) for boot in made_of)
        assert one == other
