"""The queries of docs/evaluation.md count a question once, however many seeds and checkpoints answered it."""

import random
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from datamask_pipeline.audit.views import views
from datamask_pipeline.pipeline import Pipeline
from datamask_pipeline.report.bits import bits_per_byte, share_differences, shares
from datamask_pipeline.report.comparison import final_rows

DOCUMENT = Path(__file__).parents[2] / "docs" / "evaluation.md"
QUESTIONS = 40


def queries() -> list[str]:
    (block,) = re.findall(r"```sql\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    return [text for text in block.split(";") if text.strip()]


def answers(*seeds: int) -> list[dict[str, Any]]:
    generator = random.Random(0)
    easy = [generator.random() for _ in range(QUESTIONS)]
    return [
        {
            "run": f"{arm}.dense.seed{seed}",
            "release": "first",
            "arm": arm,
            "architecture": "dense",
            "seed": seed,
            "checkpoint": checkpoint,
            "final": checkpoint > 10,
            "task": task,
            "question_id": str(question),
            "gold_bits": (1 + easy[question]) * (5 + question % 3) + generator.gauss(0, 0.1),
            "gold_bytes": 5 + question % 3,
            "gold_probability": None if task == "nq_open" else easy[question] * (0.5 + 0.2 * (arm == "datamask")),
        }
        for arm in ("random", "datamask")
        for seed in seeds
        for checkpoint in (10, 20, 30)
        for task in ("piqa", "nq_open")
        for question in range(QUESTIONS)
    ]  # fmt: skip


def answered(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    connection = duckdb.connect()
    connection.register("benchmark_answers", pa.Table.from_pylist(rows))
    return [connection.sql(text).to_arrow_table().to_pylist() for text in queries()]


def test_of_one_seed_they_say_what_the_report_says() -> None:
    rows = answers(0)
    levels, (difference,) = answered(rows)
    final = final_rows(rows)
    for arm in ("random", "datamask"):
        mine = [row for row in final if row["arm"] == arm]
        of_task = {row["task"]: row for row in levels if row["arm"] == arm}
        assert {task: row["bits_per_byte"] for task, row in of_task.items()} == pytest.approx(
            bits_per_byte(mine)
        )
        assert of_task["piqa"]["probability"] == pytest.approx(shares(mine)["piqa"])
        assert [row["questions"] for row in of_task.values()] == [QUESTIONS] * 2
    (told,) = share_differences(
        *([row for row in final if row["arm"] == arm] for arm in ("datamask", "random"))
    )
    assert (difference["task"], difference["questions"]) == ("piqa", QUESTIONS)
    assert difference["difference"] == pytest.approx(told["difference"])
    assert difference["half_width"] == pytest.approx(told["half_width"] * 1.96 / 2.0227, rel=1e-4)


def test_seeds_and_checkpoints_make_no_interval_smaller() -> None:
    (_, (one,)), (_, (four,)) = answered(answers(0)), answered(answers(0, 1, 2, 3))
    assert four["questions"] == one["questions"] == QUESTIONS
    assert four["half_width"] == pytest.approx(one["half_width"])


def test_they_run_on_a_record(tiny_run: Pipeline) -> None:
    connection = duckdb.connect()
    connection.execute(views(tiny_run.store))
    levels, differences = (connection.sql(text).to_arrow_table().to_pylist() for text in queries())
    assert {row["arm"] for row in levels} == {"random", "datamask"}
    assert differences
