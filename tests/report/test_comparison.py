"""Differences between arms come with intervals that mean what they say."""

import math

import numpy as np
import pytest

from datamask_pipeline.report.comparison import (
    beyond_luck,
    differences,
    final_rows,
    interval_of,
    luck,
    mean_score,
    tasks_asked,
)


def answers(arm: str, seed: int, values: list[float]) -> list[dict[str, object]]:
    return [
        {"arm": arm, "architecture": "dense", "seed": seed, "task": "piqa", "question_id": str(i), "value": v}
        for i, v in enumerate(values)
    ]


def test_one_seed_is_compared_question_by_question() -> None:
    rows = answers("random", 0, [0, 1, 0, 1]) + answers("datamask", 0, [1, 1, 0, 1])
    (row,) = differences(rows, baseline="random")
    assert (row["arm"], row["interval"], row["questions"], row["seeds"]) == ("datamask", "questions", 4, 1)
    assert row["difference"] == 0.25
    deltas = [1.0, 0.0, 0.0, 0.0]
    assert row["half_width"] == pytest.approx(3.182446 * np.std(deltas, ddof=1) / 2, rel=1e-6)


def test_several_seeds_are_the_sample() -> None:
    rows = []
    for seed, extra in enumerate([1, 0, 1]):
        rows += answers("random", seed, [0, 0]) + answers("datamask", seed, [extra, extra])
    (row,) = differences(rows, baseline="random")
    assert row["interval"] == "seeds"
    assert row["difference"] == pytest.approx(2 / 3)
    assert row["half_width"] == pytest.approx(4.302653 * np.std([1, 0, 1], ddof=1) / math.sqrt(3), rel=1e-6)


def test_questions_that_only_one_model_answered_do_not_count() -> None:
    rows = answers("random", 0, [0, 0]) + answers("datamask", 0, [0, 0, 1, 1])
    (row,) = differences(rows, baseline="random")
    assert (row["difference"], row["questions"]) == (0.0, 2)


@pytest.mark.parametrize(
    ("control", "mine", "difference", "discordant", "reason"),
    [
        ([[0, 1, 1]], [[0, 1, 1]], 0.0, 0, "no discordant pair"),
        ([[0, 0, 0, 0]], [[1, 1, 1, 1]], 1.0, 4, "all differences are equal"),
        ([[0]], [[1]], 1.0, 1, "one question"),
        ([[0, 1], [0, 1]], [[0, 1], [0, 1]], 0.0, 0, "no discordant pair"),
        ([[0, 1], [0, 0]], [[1, 1], [1, 0]], 0.5, 2, "all differences are equal"),
    ],
)
def test_a_sample_without_spread_has_no_interval(
    control: list[list[float]], mine: list[list[float]], difference: float, discordant: int, reason: str
) -> None:
    """0 +- 0 would say that the difference is known exactly."""
    rows = [row for seed, values in enumerate(control) for row in answers("random", seed, values)]
    rows += [row for seed, values in enumerate(mine) for row in answers("datamask", seed, values)]
    (row,) = differences(rows, baseline="random")
    assert math.isnan(row["half_width"])
    assert (row["difference"], row["discordant"], row["no_interval"]) == (difference, discordant, reason)


def test_thirds_that_differ_by_rounding_alone_have_no_spread() -> None:
    """Two seeds, each a mean over three checkpoints: their differences are equal but for the order of sums."""
    thirds = [0.0, 1 / 3, 2 / 3, 1.0, 1 / 3, 0.0, 2 / 3]
    rows = [row for seed in range(2) for row in answers("random", seed, [0.0] * 7)]
    rows += answers("datamask", 0, thirds) + answers("datamask", 1, thirds[::-1])
    (row,) = differences(rows, baseline="random")
    assert math.isnan(row["half_width"])
    assert row["no_interval"] == "all differences are equal"
    assert math.isnan(interval_of([0.1 + 0.2, 0.3]))


def test_a_sample_with_spread_gives_no_reason_against_its_interval() -> None:
    rows = answers("random", 0, [0, 1, 0, 1]) + answers("datamask", 0, [1, 1, 0, 1])
    (row,) = differences(rows, baseline="random")
    assert (row["discordant"], row["no_interval"]) == (1, None)


def test_the_interval_covers_a_null_difference_at_its_level() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(400):
        one, two = (rng.random((2, 60)) < 0.3).astype(float)
        (row,) = differences(
            answers("random", 0, list(one)) + answers("datamask", 0, list(two)), baseline="random"
        )
        inside += abs(row["difference"]) <= row["half_width"]
    assert 0.91 <= inside / 400 <= 0.98


def test_only_the_last_checkpoint_of_each_run_is_final() -> None:
    rows = [{"run": "a", "checkpoint": c, "arm": "a", "task": "t", "value": c} for c in (10, 20)]
    rows += [{"run": "b", "checkpoint": 5, "arm": "b", "task": "t", "value": 1}]
    assert [(row["run"], row["checkpoint"]) for row in final_rows(rows)] == [("a", 20), ("b", 5)]
    assert mean_score(final_rows(rows), "a") == 20


def test_a_result_is_the_mean_over_the_final_checkpoints_of_its_run() -> None:
    row = {"run": "a", "arm": "a", "task": "t", "metric": "acc", "stderr": 0.1}
    rows = [row | {"checkpoint": c, "final": c > 10, "value": c / 100} for c in (30, 10, 20)]
    (mean,) = final_rows(rows)
    assert (mean["value"], mean["checkpoint"], mean["checkpoints"], mean["stderr"]) == (0.25, 30, 2, None)
    (alone,) = final_rows([row | {"checkpoint": 3, "final": True, "value": 0.5}])
    assert (alone["value"], alone["checkpoints"], alone["stderr"]) == (0.5, 1, 0.1)


def test_answers_are_averaged_question_by_question() -> None:
    found = final_rows(
        [
            {
                "run": "a",
                "task": "t",
                "metric": "acc",
                "question_id": question,
                "checkpoint": step,
                "final": True,
            }
            | {"value": float(step == 2), "gold_bits": step * bits, "gold_probability": share}
            for step in (1, 2)
            for question, bits, share in (("q", 4.0, None), ("r", 6.0, 0.25))
        ]
    )
    assert [
        (row["question_id"], row["value"], row["gold_bits"], row["gold_probability"]) for row in found
    ] == [
        ("q", 0.5, 6.0, None),
        ("r", 0.5, 9.0, 0.25),
    ]


@pytest.mark.parametrize(("n", "right"), [(2, 2), (5, 4), (40, 13), (7, 0)])
def test_the_probability_of_luck_is_the_exact_binomial_one(n: int, right: int) -> None:
    from scipy.stats import binomtest

    for chance in (0.25, 0.5):
        exact = binomtest(right, n, max(chance, 1 / n), alternative="greater").pvalue
        assert luck(right / n, n, chance) == pytest.approx(exact, abs=1e-12)


def test_holms_steps_go_on_until_one_fails() -> None:
    assert beyond_luck([0.02, 0.5, 0.008]) == [False, False, True]  # .025 / 3 holds .008, .025 / 2 not .02
    assert beyond_luck([0.012, 0.02, 0.008]) == [True, True, True]
    assert beyond_luck([0.03, 0.02]) == [False, False]
    assert beyond_luck([]) == []


def test_one_task_of_twelve_above_chance_by_luck_is_not_called_above() -> None:
    row = {"n": 100, "chance": 0.25, "shots": 0, "num_truncated": 0}
    lucky = row | {"task": "piqa", "value": 0.35}  # alone: guessing scores so much in 1.6 % of cases
    others = [row | {"task": f"task {number}", "value": 0.25} for number in range(11)]
    assert tasks_asked([lucky])["piqa"]["above_chance"]
    assert not any(asked["above_chance"] for asked in tasks_asked([lucky, *others]).values())
    clear = tasks_asked([lucky | {"value": 0.45}, lucky, *others])
    assert (clear["piqa"]["models"], clear["piqa"]["models_above"]) == (2, 1)
    assert clear["piqa"]["above_chance"]


@pytest.mark.parametrize(
    ("n", "value", "above"), [(2, 1.0, False), (2, 0.0, False), (200, 1.0, True), (3, 0.3, False)]
)
def test_a_few_right_answers_are_no_certainty(n: int, value: float, above: bool) -> None:
    row = {"task": "piqa", "value": value, "stderr": 0.0, "n": n, "chance": 0.25, "shots": 5}
    row |= {"num_truncated": 3}
    asked = {"n": n, "chance": 0.25, "shots": 5, "above_chance": above, "truncated": 3, "no_signal": None}
    older = asked | {"prompts": None, "models": 2, "models_above": 2 * above}
    assert tasks_asked([row, row | {"num_truncated": 1}]) == {"piqa": older}
    one = {"prompts": 2 * n, "models": 1, "models_above": int(above)}
    assert tasks_asked([row | {"num_prompts": 2 * n}]) == {"piqa": asked | one}


def test_tasks_that_rank_small_models_no_better_than_a_coin_are_known() -> None:
    row = {"value": 0.5, "n": 9, "chance": 0.5, "num_truncated": 0}
    tasks = ("social_iqa", "winogrande", "boolq", "piqa", "openbookqa", "nq_open")
    asked = tasks_asked([row | {"task": task} for task in tasks])
    assert [task for task in tasks if asked[task]["no_signal"]] == ["social_iqa", "winogrande", "boolq"]
    assert "150 M parameters rank two corpora as models of 1 B do in 50%" in asked["winogrande"]["no_signal"]


@pytest.mark.parametrize(("right", "clearly"), [(0, False), (1, False), (3, False), (6, True)])
def test_a_right_answer_or_two_where_guessing_scores_nothing_are_no_skill(right: int, clearly: bool) -> None:
    row = {"task": "nq_open", "value": right / 20, "n": 20, "chance": 0.0, "num_truncated": 0}
    assert tasks_asked([row])["nq_open"]["above_chance"] == clearly
