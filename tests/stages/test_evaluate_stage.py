"""Which checkpoints a model's result is the mean of, and what the record says of them."""

import math
import shutil
from pathlib import Path

import pytest

from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.report.comparison import final_rows
from datamask_pipeline.schema import HELD_OUT
from datamask_pipeline.stages.evaluate import final_steps

RELEASE, RUN = "first", "random.dense.seed0"


@pytest.mark.parametrize(
    ("steps", "number", "found"),
    [
        ([100, 195], 3, [195]),  # half-way is not near the end
        ([*range(10, 101, 10)], 3, [80, 90, 100]),
        ([*range(10, 101, 10)], 2, [90, 100]),
        ([*range(10, 101, 10)], 9, [80, 90, 100]),
        ([7], 3, [7]),
        ([30, 20, 29], 1, [30]),
    ],
)
def test_the_last_checkpoints_near_the_end_count(steps: list[int], number: int, found: list[int]) -> None:
    assert final_steps(steps, number) == found


@pytest.mark.slow
def test_a_models_result_is_the_mean_over_its_last_checkpoints(
    tiny_run: Pipeline, tiny_config_file: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_run.store.root, tmp_path / "record")
    changes = {"store": str(tmp_path / "record"), "pretrain.checkpoint_every_steps": 1}
    changes |= {"pretrain.log_every_steps": 1, "evaluate.final_checkpoints": 2, "evaluate.checkpoints": "all"}
    pipeline = Pipeline(load_config(str(tiny_config_file), changes))
    pipeline.run("pretrain", RELEASE, RUN)
    results, answers = pipeline.run("evaluate", RELEASE, RUN)
    rows = pipeline.store.read_table(results).to_pylist()
    assert {(row["checkpoint"], row["final"]) for row in rows} == {(n, n > 8) for n in range(1, 11)}
    headline = pipeline.store.manifest(results)["metadata"]["headline"]
    found = [row for row in rows if row["task"] == "piqa" and row["headline"] and row["checkpoint"] > 8]
    assert len(found) == 2
    assert headline["piqa"] == math.fsum(row["value"] for row in found) / 2
    means = final_rows(pipeline.store.read_table(answers).to_pylist())
    assert {row["checkpoints"] for row in means} == {2}
    held_out = [row for row in means if row["task"] == HELD_OUT]
    mine = [row for row in pipeline.store.read_table(answers).to_pylist() if row["task"] == HELD_OUT]
    for row in held_out[:3]:
        of_last = [
            each["gold_bits"] for each in mine if each["question_id"] == row["question_id"] and each["final"]
        ]
        assert len(of_last) == 2
        assert row["gold_bits"] == pytest.approx(sum(of_last) / 2)
    assert {row["checkpoint"] for row in mine} == {*range(1, 11)}
    questions = [row for row in means if row["task"] == "piqa"]
    assert headline["piqa"] == pytest.approx(math.fsum(row["value"] for row in questions) / len(questions))
