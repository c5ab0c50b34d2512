"""Every table of a report has its arms and tasks in one order, and says over what its intervals are."""

import io
import random
from typing import Any

import pytest
from rich.console import Console

from datamask_pipeline.report.arms import print_arms
from datamask_pipeline.report.comparison import differences
from datamask_pipeline.report.gold import MEAN, gold_figures
from datamask_pipeline.report.ngram import ngram_figures
from datamask_pipeline.report.order import MANY, about_intervals
from datamask_pipeline.schema import HELD_OUT

CONFIGURED = ["topk", "random", "datamask"]
TASKS = ["winogrande", "piqa", "arc_easy"]


def answers(arm: str, seed: int, right: dict[str, float]) -> list[dict[str, Any]]:
    generator = random.Random(f"{arm} {seed}")
    return [
        {"arm": arm, "architecture": "dense", "seed": seed, "task": task, "question_id": str(question)}
        | {"value": right.get(f"{task} {question}", 0.0), "gold_bits": 5 + generator.random()}
        | {"gold_bytes": 3, "gold_probability": generator.random()}
        for task in TASKS
        for question in range(50)
    ]


def by_name(found: Any) -> Any:
    """As a manifest has it, whose keys are sorted."""
    return {key: by_name(found[key]) for key in sorted(found)} if isinstance(found, dict) else found


def about(seeds: int) -> dict[str, Any]:
    right = {"topk": {"piqa 3": 1.0}, "datamask": {}, "random": {}}
    rows = [row for arm in CONFIGURED for seed in range(seeds) for row in answers(arm, seed, right[arm])]
    gold = gold_figures(rows, baseline="random")
    gold["arms"] = by_name(gold["arms"])
    asked = {
        "n": 50,
        "chance": 0.5,
        "above_chance": True,
        "models": 3,
        "models_above": 1,
        "truncated": 0,
        "prompts": 9,
        "shots": 0,
    }
    asked |= {"no_signal": None}
    counted = {arm: answers(arm, 9, {}) for arm in CONFIGURED}
    for of in counted.values():
        of += [row | {"task": HELD_OUT} for row in of[:50]]
    nothing = {"documents": 1, "tokens": 1, "objective": 0.0, "gap": None, "bits_per_byte": 1.0}
    nothing |= {"epochs": None, "mean": 0.0, "runs": seeds}
    return {
        "release": "first",
        "crawls": [],
        "no_power": [],
        "baseline": "random",
        "arms": [{"arm": arm, "tasks": dict.fromkeys(TASKS, 0.1), **nothing} for arm in CONFIGURED],
        "redundancy": {},
        "tasks": dict.fromkeys(TASKS, asked),
        "checkpoints": [1],
        "differences": differences(rows, baseline="random"),
        "gold": gold,
        "ngram": ngram_figures(counted, dict.fromkeys(CONFIGURED, 9), "random"),
    }


def printed(seeds: int) -> str:
    console = Console(file=io.StringIO(), width=200)
    print_arms(console, about(seeds))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_arms_and_tasks_stand_in_one_order_in_all_tables() -> None:
    shown = printed(1)
    heads = [line for line in shown.splitlines() if line.startswith("┃")]
    assert len(heads) == 6
    for head in heads:
        names = [cell.split()[0] for cell in head.strip("┃").split("┃") if cell.strip()]
        assert names == [arm for arm in ("random", "topk", "datamask") if arm in names]
    firsts = [line.split("│")[1].split() for line in shown.splitlines() if line.startswith("│")]
    named = [first[0].strip(",") for first in firsts if first and first[0].strip(",") in TASKS]
    assert named == sorted(TASKS) * (len(named) // 3)
    # The mean stands below its tasks: in the table of scores, and in both measures of right answers, twice.
    means = [place for place, first in enumerate(firsts) if " ".join(first).startswith(MEAN)]
    assert len(means) == 5
    assert all(firsts[place - 1][0].strip(",") == "winogrande" for place in means)


@pytest.mark.parametrize("seeds", [1, 2, 4])
def test_intervals_say_what_they_cover(seeds: int) -> None:
    shown = printed(seeds)
    over = "questions" if seeds == 1 else f"{seeds} seeds"
    assert shown.count(f"with the 95 % interval over {over}\n") == 2
    assert ("one seed: intervals between models cover other questions" in shown) == (seeds == 1)
    assert (f"{seeds} seeds: intervals between models cover other seeds, not other q" in shown) == (seeds > 1)
    assert ("the spread of 2 seeds is hardly known, so these intervals are a guess" in shown) == (seeds == 2)
    lines = [line for line in shown.splitlines() if "intervals between models cover" in line]
    assert [line.endswith(", nor another draw of documents") for line in lines] == [True]


@pytest.mark.parametrize("seeds", [1, 2])
def test_the_mean_over_models_is_called_one(seeds: int) -> None:
    told = [line for line in printed(seeds).splitlines() if line.startswith("scores and bits per byte")]
    line = "scores and bits per byte of an arm are means over its 2 models, of every architecture and seed"
    assert told == [line] * (seeds > 1)


@pytest.mark.parametrize("shots", [0, 5])
def test_solved_examples_before_each_question_are_told(shots: int) -> None:
    """A score with five examples is no score without."""
    found = about(1)
    found["tasks"] = {task: asked | {"shots": shots} for task, asked in found["tasks"].items()}
    console = Console(file=io.StringIO(), width=200)
    print_arms(console, found)
    assert isinstance(console.file, io.StringIO)
    told = [line for line in console.file.getvalue().splitlines() if line.startswith("solved examples")]
    assert told == ["solved examples before each question: 5 (evaluate.shots)"] * (shots > 0)


def test_one_discordant_pair_is_called_a_guess() -> None:
    assert printed(1).count("± 0.0402 (one discordant pair: a guess)") == 1


def test_of_many_intervals_it_is_said_how_many_luck_makes() -> None:
    def row(difference: float, half_width: float | None = 0.1) -> dict[str, Any]:
        return {"seeds": 4, "difference": difference, "half_width": half_width}

    few, many = (
        [row(0.2)] * (MANY - 1),
        [row(0.2)] * 3 + [row(0.0)] * 37 + [row(0.0, float("nan")), row(0.0, None)],
    )
    assert not any("luck" in line for line in about_intervals({"differences": few}))
    assert about_intervals({"differences": many})[-1] == (
        "40 intervals of 95 %: about 2 leave 0 out by luck alone; 3 do"
    )
