"""Right answers are compared in pairs, over seeds where there are several."""

import io
import math
import random
from typing import Any

import pytest
from rich.console import Console

from datamask_pipeline.report.comparison import differences
from datamask_pipeline.report.gold import MEAN, gold_figures, print_gold
from datamask_pipeline.schema import CURATED, HELD_OUT


def answers(
    arm: str, shift: float, *, seeds: int = 1, tasks: tuple[str, ...] = ("piqa", "nq_open")
) -> list[Any]:
    generator = random.Random(f"{arm}")
    return [
        {
            "arm": arm,
            "architecture": "dense",
            "seed": seed,
            "task": task,
            "question_id": str(question),
            "gold_bits": (2.0 + shift) * (5 + question % 7) + generator.gauss(0, 0.3),
            "gold_bytes": 5 + question % 7,
            "gold_probability": None if task == "nq_open" else 0.4 - shift + generator.gauss(0, 0.01),
        }
        for seed in range(seeds)
        for task in tasks
        for question in range(60)
    ]


@pytest.mark.parametrize("seeds", [1, 4])
def test_a_difference_is_seen_and_the_interval_says_over_what(seeds: int) -> None:
    rows = answers("random", 0.0, seeds=seeds) + answers("datamask", -0.2, seeds=seeds)
    gold = gold_figures(rows, baseline="random")
    assert gold["arms"]["random"]["bits_per_byte"]["piqa"] == pytest.approx(2.0, abs=0.03)
    assert gold["arms"]["datamask"]["probability"] == pytest.approx({"piqa": 0.6, MEAN: 0.6}, abs=0.01)
    found = {(row["measure"], row["task"]): row for row in gold["differences"]}
    assert set(found) == {
        ("bits_per_byte", "piqa"), ("bits_per_byte", "nq_open"), ("bits_per_byte", MEAN),
        ("probability", "piqa"), ("probability", MEAN),
    }  # fmt: skip
    for (measure, _), row in found.items():
        expected = -0.2 if measure == "bits_per_byte" else 0.2
        assert abs(row["difference"] - expected) < 2 * row["half_width"] < 0.1
        assert (row["interval"], row["seeds"]) == ("questions" if seeds == 1 else "seeds", seeds)


def test_seeds_are_paired_by_task_in_whatever_order_their_rows_stand() -> None:
    tasks = ("piqa", "mmlu", "arc_easy")
    rows = answers("random", 0.0, seeds=2, tasks=tasks)
    for seed, task_first in ((0, "arc_easy"), (1, "piqa")):
        mine = [row | {"seed": seed} for row in answers("datamask", -0.2, tasks=tasks)]
        mine = [row | {"gold_bits": row["gold_bits"] + 5 * (row["task"] == "piqa")} for row in mine]
        rows += sorted(mine, key=lambda row: row["task"] != task_first)
    found = gold_figures(rows, baseline="random")["differences"]
    of_bits = {row["task"]: row["difference"] for row in found if row["measure"] == "bits_per_byte"}
    assert list(of_bits) == ["arc_easy", "piqa", "mmlu", MEAN]
    assert of_bits["arc_easy"] == pytest.approx(-0.2, abs=0.05)
    assert of_bits["piqa"] == pytest.approx(-0.2 + 5 / 8, abs=0.06)


@pytest.mark.parametrize("seeds", [1, 3])
def test_documents_are_compared_and_enter_no_mean(seeds: int) -> None:
    both = [("random", 0.0), ("datamask", -0.2)]
    rows = [row | {"value": 0.5} for arm, shift in both for row in answers(arm, shift, seeds=seeds)]
    documents = [
        row | {"value": None, "gold_probability": None}
        for arm, shift in both
        for row in answers(arm, -2 * shift, seeds=seeds, tasks=(HELD_OUT, CURATED))
    ]
    before, after = (gold_figures(given, baseline="random") for given in (rows, rows + documents))
    assert after["arms"]["datamask"]["bits_per_byte"][CURATED] == pytest.approx(2.4, abs=0.03)
    for arm, _ in both:
        assert after["arms"][arm]["bits_per_byte"][MEAN] == before["arms"][arm]["bits_per_byte"][MEAN]
    of_before, of_after = (
        {(row["measure"], row["task"]): row for row in given["differences"]} for given in (before, after)
    )
    assert of_after.keys() - of_before.keys() == {("bits_per_byte", HELD_OUT), ("bits_per_byte", CURATED)}
    assert {key: of_after[key] for key in of_before} == of_before
    assert of_after["bits_per_byte", CURATED]["difference"] == pytest.approx(0.4, abs=0.03)
    out = io.StringIO()
    print_gold(Console(file=out, width=120), {"gold": after, "baseline": "random"})
    questions, bits = out.getvalue().split("documents: bits per byte, lower is better")
    assert not any(name in questions for name in ("held out documents", "curated documents"))
    assert bits.count("curated documents") == 2
    assert f"interval over {'documents' if seeds == 1 else f'{seeds} seeds'}" in bits
    assert {row["task"] for row in differences(rows + documents, baseline="random")} == {"piqa", "nq_open"}


def test_documents_alone_have_no_mean() -> None:
    rows = [row | {"gold_probability": None} for row in answers("random", 0.0, tasks=(HELD_OUT,))]
    assert list(gold_figures(rows, baseline="random")["arms"]["random"]["bits_per_byte"]) == [HELD_OUT]


def test_nothing_is_claimed_without_spread_or_baseline() -> None:
    rows = answers("random", 0.0, tasks=("piqa",))
    same = [row | {"arm": "copy"} for row in rows]
    gold = gold_figures(rows + same, baseline="random")
    assert all(row["difference"] == 0 and math.isnan(row["half_width"]) for row in gold["differences"])
    assert gold_figures(rows + same, baseline="other")["differences"] == []


def test_the_table_names_measures_and_intervals() -> None:
    gold = gold_figures(answers("random", 0.0) + answers("datamask", -0.2), baseline="random")
    out = io.StringIO()
    print_gold(Console(file=out, width=120), {"gold": gold, "baseline": "random"})
    shown = out.getvalue()
    assert "right answers less those of random, with the 95 % interval over questions" in shown
    lines = {line.split("│")[1].strip(): line for line in shown.splitlines() if line.count("│") > 2}
    assert {"piqa, bits per byte", "nq_open, bits per byte", "piqa, share", f"{MEAN}, bits per byte"} <= set(
        lines
    )
    assert "nq_open, share" not in lines
    print_gold(Console(file=out), {"baseline": "random"})  # a record of an earlier version
