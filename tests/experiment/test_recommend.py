"""The best of many is judged on what did not choose it: nothing is found where nothing is, a planted best is."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from datamask_pipeline.errors import InputError
from datamask_pipeline.experiment.judge import Bootstrap
from datamask_pipeline.experiment.recommend import on_frontier, recommend
from datamask_pipeline.experiment.report_sweep import labels, plot_of_sweep, recommendation, sweep
from datamask_pipeline.schema import CURATED, HELD_OUT

ITEMS = {"piqa": 40, "mmlu": 60, HELD_OUT: 10}
BYTES = np.random.default_rng(0).integers(5, 40, sum(ITEMS.values()))
NAMES = ["random", "today", *(f"arm {place}" for place in range(18))]
DRAWS = 8


def made(generator: np.random.Generator, effect: float = 0.0) -> NDArray[np.float32]:
    """Bits of arms that do not differ: each has luck on draws, and on questions. The last one needs fewer by an effect."""
    shape = (DRAWS, len(NAMES), len(BYTES))
    luck = generator.normal(0, 0.02, (DRAWS, len(NAMES), 1)) + generator.normal(0, 0.1, shape)
    of_question = generator.normal(0, 0.2, (1, len(NAMES), len(BYTES)))
    bits = 2.5 + luck + of_question
    bits[:, -1] -= effect
    return (bits * BYTES).astype(np.float32)


def recommended(bits: NDArray[np.float32], seed: int = 0):  # type: ignore[no-untyped-def]
    return recommend(NAMES, NAMES[2:], "today", "random", bits, BYTES, ITEMS, seed=seed)


@pytest.mark.slow
def test_among_equals_the_interval_holds_nothing_as_often_as_it_says() -> None:
    """Chosen and judged on the same draws and questions, the best of 18 equals would look better far too often."""
    generator, held, naive, number = np.random.default_rng(1), 0, 0, 150
    for seed in range(number):
        bits = made(generator)
        found = recommended(bits, seed)
        held += abs(found.less_reference.difference) <= found.less_reference.half_width
        sampled = Bootstrap.of(NAMES, bits, BYTES, ITEMS, seed=seed, num_samples=200)
        tasks = ["piqa", "mmlu"]
        means = {name: sampled.difference(name, "today", tasks) for name in NAMES[2:]}
        best = min(means.values(), key=lambda one: one.difference)
        naive += abs(best.difference) <= best.half_width
    assert abs(held / number - 0.95) <= 1.96 * math.sqrt(0.95 * 0.05 / number)
    assert naive / number < 0.85


def test_a_planted_best_is_chosen_and_found() -> None:
    found = recommended(made(np.random.default_rng(2), effect=0.3))
    assert (found.best, found.other_way, found.is_better) == (NAMES[-1], NAMES[-1], True)
    assert found.less_reference.difference == pytest.approx(-0.3, abs=0.12)
    assert (found.num_arms, found.num_pairs, found.num_questions) == (18, 2, 50)


def test_the_best_there_that_is_clearly_worse_where_it_is_judged_is_told_as_such() -> None:
    """Its interval leaves 0 out: that is a difference, and the reference is better."""
    bits = made(np.random.default_rng(2), effect=0.3)
    bits[DRAWS // 2 :, -1] += (0.8 * BYTES).astype(np.float32)
    config: Any = SimpleNamespace(grid=SimpleNamespace(reference="today"), baseline="random")

    def told(bits: NDArray[np.float32]) -> str:
        verdict: Any = SimpleNamespace(recommendation=recommended(bits), has_power=True)
        return recommendation(config, verdict)

    assert told(bits).startswith(f"Not recommended: {NAMES[-1]} looked best, and is worse than today. +0.")
    assert told(made(np.random.default_rng(2))).startswith("No difference seen: ")
    assert told(made(np.random.default_rng(2), effect=0.3)).startswith(f"Recommended: {NAMES[-1]}. -0.")


def test_without_power_the_plot_of_a_sweep_ranks_no_arm_by_its_bits() -> None:
    """Its colours are what the report shows no difference of."""
    config: Any = SimpleNamespace(grid=SimpleNamespace(arms=lambda: ["a", "b"]))
    measures = {"a": {"quality_rank": 0.4, "coverage": 0.8}, "b": {"quality_rank": 0.6, "coverage": 0.7}}

    def drawn(bits: float, *, has_power: bool) -> bytes:
        arms = {"a": {"gold_answers": 2.5}, "b": {"gold_answers": bits}}
        verdict: Any = SimpleNamespace(measures=measures, arms=arms, has_power=has_power)
        return plot_of_sweep(config, {"whole": verdict})

    assert drawn(2.4, has_power=True) != drawn(2.6, has_power=True)
    assert drawn(2.4, has_power=False) == drawn(2.6, has_power=False)


def test_an_arm_that_is_none_of_the_sweep_is_not_told_as_beaten() -> None:
    grid = SimpleNamespace(reference="today", arms=lambda: ["a", "b"])
    config: Any = SimpleNamespace(grid=grid, baseline="random", name="mine")
    rest = {"similarity": 0.5, "near_copies": 0.0, "domains": 3}
    terms = {"a": (0.5, 0.8), "b": (0.4, 0.7), "quality": (0.9, 0.9)}
    measures = {name: {"quality_rank": x, "coverage": y, **rest} for name, (x, y) in terms.items()}
    arms = {name: {"gold_answers": 2.5, "length_median": 9} for name in terms}
    found = recommended(made(np.random.default_rng(2)))
    verdict: Any = SimpleNamespace(
        measures=measures, arms=arms, recommendation=found, has_power=False, against_baseline={}
    )
    rows = [line.split(" | ")[:2] for line in sweep(config, verdict) if line.startswith("| ")]
    assert rows[1:] == [["| a", "yes"], ["| b", ""], ["| quality", "-"]]


def test_numbers_of_points_in_one_place_stand_beside_each_other() -> None:
    """As names over each other cannot be read."""
    places = {1: (0.5, 0.80), 2: (0.501, 0.80), 3: (0.9, 0.90), 4: (0.5, 0.90), 5: (0.502, 0.801)}
    assert labels(places) == {"1, 2, 5": (0.5, 0.80), "3": (0.9, 0.90), "4": (0.5, 0.90)}
    assert labels({1: (0.5, 0.8), 2: (0.5, 0.8)}) == {"1, 2": (0.5, 0.8)}


def test_documents_of_no_kind_choose_or_judge() -> None:
    bits = made(np.random.default_rng(5), effect=0.1)
    before = recommended(bits)
    more = np.concatenate([bits, bits[:, :, :4] * np.arange(1, 1 + len(NAMES))[:, None]], axis=2)
    sizes, items = np.concatenate([BYTES, BYTES[:4]]), {**ITEMS, CURATED: 4}
    assert recommend(NAMES, NAMES[2:], "today", "random", more, sizes, items, seed=0) == before


def test_draws_that_judge_do_not_choose() -> None:
    bits = made(np.random.default_rng(3), effect=0.3)
    before = recommended(bits)
    bits[DRAWS // 2 :, 5] -= (2.0 * BYTES).astype(np.float32)
    found = recommended(bits)
    assert (found.best, found.other_way) == (NAMES[-1], NAMES[5])
    assert found.less_reference.difference == pytest.approx(before.less_reference.difference)


def test_questions_that_judge_do_not_choose() -> None:
    """An arm that is far better on one question is chosen where that question chooses, and is not where it judges."""
    bits = made(np.random.default_rng(3), effect=0.3)
    bits[:, 5, 70] -= 2_000.0
    sides = [(found.best, found.other_way) for found in (recommended(bits, seed) for seed in range(8))]
    assert set(sides) == {(NAMES[5], NAMES[-1]), (NAMES[-1], NAMES[5])}


def test_held_out_documents_choose_nothing() -> None:
    bits = made(np.random.default_rng(5), effect=0.3)
    before = recommended(bits)
    bits[:, 3, 100:] = 0.0
    assert recommended(bits) == before


def test_one_question_cannot_be_divided() -> None:
    with pytest.raises(InputError, match="task 'mmlu' has one question"):
        recommend(
            NAMES,
            NAMES[2:],
            "today",
            "random",
            made(np.random.default_rng(0))[:, :, :41],
            BYTES[:41],
            {"piqa": 40, "mmlu": 1},
            seed=0,
        )


def test_the_frontier_is_what_nothing_beats_in_both() -> None:
    figures = {
        "a": (0.9, 0.1),
        "b": (0.5, 0.5),
        "c": (0.4, 0.5),
        "d": (0.1, 0.9),
        "e": (0.4, 0.4),
        "f": (0.5, 0.5),
    }
    assert on_frontier(figures) == ["a", "b", "d", "f"]
