"""Curated documents from their file to the report: bits of each as of held-out ones, and in no mean over benchmarks."""

import io
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from tiny_chain import TASKS
from typer.testing import CliRunner

from assets import evaluate as evaluate_asset
from assets.checks import Artefact
from datamask_pipeline import texts
from datamask_pipeline.cli.app import app
from datamask_pipeline.cli.summary import print_summary, release_summary
from datamask_pipeline.compliance.contamination import contamination
from datamask_pipeline.errors import InputError
from datamask_pipeline.evaluation.config import LOCAL
from datamask_pipeline.pipeline import Pipeline, load_config
from datamask_pipeline.pipeline.held_against import not_held_against
from datamask_pipeline.report.gold import MEAN
from datamask_pipeline.schema import CURATED, HELD_OUT, OF_DOCUMENTS
from datamask_pipeline.storage import require

RELEASE, RUN = "first", "datamask.dense.seed0"
OWN = "The orchard near the hedge was planted by hand, and every seedling was watered twice a day for a year."


def held_out_of(pipeline: Pipeline) -> dict[str, str]:
    crawls = {crawl: require(pipeline.store, "ingest", crawl) for crawl in pipeline.release_crawls(RELEASE)}
    return dict(
        texts.pool_documents(pipeline.store, require(pipeline.store, "pool", RELEASE), crawls, "validation")
    )


@pytest.fixture(scope="module")
def curated(tiny_run: Pipeline, tiny_config_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """The tiny chain, asked two held-out texts and one of its own as curated documents, of two checkpoints."""
    folder = tmp_path_factory.mktemp("curated")
    shutil.copytree(tiny_run.store.root, folder / "record")
    rows = [{"body": text} for text in (*list(held_out_of(tiny_run).values())[:2], OWN, OWN, "")]
    (folder / "good.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    changes = {
        "store": str(folder / "record"),
        "pretrain.checkpoint_every_steps": 9,
        "pretrain.log_every_steps": 9,
    }
    changes |= {"evaluate.curated": str(folder / "good.jsonl"), "evaluate.curated_column": "body"}
    pipeline = Pipeline(load_config(str(tiny_config_file), changes))
    pipeline.check()
    for _, _, call in pipeline.steps(RELEASE):
        call()
    return pipeline


def rows_of(pipeline: Pipeline, stage: str, key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pipeline.store.read_table(require(pipeline.store, stage, key)).to_pylist()
    return found


def test_questions_take_them_in_and_say_what_was_rejected(curated: Pipeline, tiny_run: Pipeline) -> None:
    manifest = curated.store.manifest(require(curated.store, "questions", RELEASE))
    about = manifest["metadata"]["curated"]
    assert (about["source"], about["num_documents"], about["num_read"]) == ("good.jsonl", 3, 5)
    assert [(row["row"], row["reason"]) for row in about["rejected"]] == [
        (3, "repeats an earlier row"),
        (4, "no text"),
    ]
    before = tiny_run.store.manifest(require(tiny_run.store, "questions", RELEASE))
    assert manifest["counts"]["rows_in"] == before["counts"]["rows_in"] + 5
    assert manifest["counts"]["dropped_rejected"] == before["counts"]["dropped_rejected"] + 2
    assert manifest["basis"]["config"].keys() - before["basis"]["config"].keys() == {
        "curated",
        "curated_column",
    }
    assert manifest["basis"]["inputs"].keys() - before["basis"]["inputs"].keys() == {"curated"}
    assert "curated" not in before["metadata"]


def test_other_documents_are_other_questions_wherever_they_lie(curated: Pipeline, tmp_path: Path) -> None:
    before = require(curated.store, "questions", RELEASE)
    (tmp_path / "good.jsonl").write_bytes(Path(str(curated.config.evaluate.curated)).read_bytes())
    assert curated.run("questions", RELEASE, overrides={"curated": str(tmp_path / "good.jsonl")}) == (before,)
    with (tmp_path / "good.jsonl").open("a") as stream:
        stream.write('{"body": "One more."}\n')
    (after,) = curated.run("questions", RELEASE, overrides={"curated": str(tmp_path / "good.jsonl")})
    assert after.content_digest != before.content_digest
    assert curated.run("questions", RELEASE) == (before,)


def test_a_text_has_the_same_bits_as_a_held_out_and_as_a_curated_document(curated: Pipeline) -> None:
    held_out = list(held_out_of(curated).items())
    for stage, key in (("ngram", f"{RELEASE}/datamask"), ("answers", f"{RELEASE}/{RUN}")):
        rows = rows_of(curated, stage, key)
        steps = sorted({row.get("checkpoint", 0) for row in rows})
        assert steps == ([0] if stage == "ngram" else [9, 10])
        for step in steps:
            of_step = [row for row in rows if row.get("checkpoint", 0) == step]
            by_task = {
                task: {row["question_id"]: row for row in of_step if row["task"] == task}
                for task in OF_DOCUMENTS
            }
            assert list(by_task[HELD_OUT]) == [name for name, _ in held_out]
            found = list(by_task[CURATED].values())
            assert len(found) == 3
            assert found[2]["gold_bytes"] == len(OWN.encode())
            for row, (name, text) in zip(found[:2], held_out[:2], strict=True):
                assert row["gold_bits"] == pytest.approx(by_task[HELD_OUT][name]["gold_bits"], rel=1e-6)
                assert row["gold_bytes"] == len(text.encode())
            assert found[0]["gold_bits"] != found[2]["gold_bits"]


def test_the_last_checkpoint_has_the_bits_that_its_training_ended_with(curated: Pipeline) -> None:
    key = f"{RELEASE}/{RUN}"
    told = curated.store.manifest(require(curated.store, "pretrain", key))["metadata"]["bits_per_byte"]
    last = [
        row for row in rows_of(curated, "answers", key) if row["task"] == HELD_OUT and row["checkpoint"] == 10
    ]
    found = math.fsum(row["gold_bits"] for row in last) / sum(row["gold_bytes"] for row in last)
    assert found == pytest.approx(told, rel=1e-6)


def test_documents_have_no_score_and_no_result(curated: Pipeline) -> None:
    rows = rows_of(curated, "answers", f"{RELEASE}/{RUN}")
    for row in rows:
        is_document = row["task"] in OF_DOCUMENTS
        assert [row[name] is None for name in ("value", "metric")] == [is_document] * 2
        assert not (is_document and row["gold_probability"] is not None)
    assert not {*OF_DOCUMENTS} & {row["task"] for row in rows_of(curated, "evaluate", f"{RELEASE}/{RUN}")}


def test_a_comparison_keeps_them_apart_from_benchmarks(curated: Pipeline, tiny_run: Pipeline) -> None:
    about = curated.store.manifest(require(curated.store, "compare", RELEASE))["metadata"]
    rows = [row for row in rows_of(curated, "answers", f"{RELEASE}/{RUN}") if row["final"]]
    (mine,) = [row for row in about["arms"] if row["arm"] == "datamask"]
    gold = about["gold"]["arms"]["datamask"]["bits_per_byte"]
    for task, told in (
        (HELD_OUT, mine["bits_per_byte"]),
        (HELD_OUT, gold[HELD_OUT]),
        (CURATED, gold[CURATED]),
    ):
        of_task = [row for row in rows if row["task"] == task]
        bits = math.fsum(row["gold_bits"] for row in of_task) / sum(row["gold_bytes"] for row in of_task)
        assert told == pytest.approx(bits, rel=1e-9)  # over both checkpoints, not of the last one alone
    benchmarks = [value for task, value in gold.items() if task not in (*OF_DOCUMENTS, MEAN)]
    assert len(benchmarks) == len(TASKS)
    assert gold[MEAN] == pytest.approx(math.fsum(benchmarks) / len(TASKS), rel=1e-12)
    of_bits = {
        row["task"]: row["difference"]
        for row in about["gold"]["differences"]
        if row["measure"] == "bits_per_byte"
    }
    other = about["gold"]["arms"]["random"]["bits_per_byte"]
    assert of_bits[CURATED] == pytest.approx(gold[CURATED] - other[CURATED], rel=1e-6)
    assert of_bits[MEAN] == pytest.approx(gold[MEAN] - other[MEAN], rel=1e-6)
    assert not {*OF_DOCUMENTS} & {row["task"] for row in about["differences"]}
    assert not {*OF_DOCUMENTS} & {*mine["tasks"]}
    before = tiny_run.store.manifest(require(tiny_run.store, "compare", RELEASE))["metadata"]
    assert CURATED not in before["gold"]["arms"]["datamask"]["bits_per_byte"]
    assert all(row["bits_per_byte"] > 0 for row in before["arms"])


def test_the_report_shows_both_sets_and_that_nothing_was_held_against_them(
    curated: Pipeline, tiny_run: Pipeline
) -> None:
    def shown(pipeline: Pipeline) -> str:
        out = io.StringIO()
        print_summary(pipeline, RELEASE, console=Console(file=out, width=160))
        return out.getvalue()

    found = shown(curated)
    for title in (
        "documents: bits per byte, lower is better",
        "documents' bits less those of random, with the 95 %",
    ):
        assert title in found
    assert found.count("│ curated documents ") == 4  # of networks and of n-gram models, with differences each
    assert "scores and bits per byte are means over each model's last checkpoints (2, by" in found
    assert "documents were not held against the 3 curated documents" in found
    assert "curated" not in shown(tiny_run)
    assert release_summary(tiny_run, RELEASE)["not_held_against"] == []


def test_documents_that_hold_a_curated_one_are_told_of_and_left_out(
    curated: Pipeline, tmp_path: Path
) -> None:
    shutil.copytree(curated.store.root, tmp_path / "record")
    (known,) = [
        row for row in rows_of(curated, "ingest", "tiny-2024-10") if row["row"] == 0 and row["shard"] == "000"
    ]
    rows = [{"body": f"{known['text']} And so on."}, {"body": OWN}]
    (tmp_path / "leaked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {"store": str(tmp_path / "record"), "evaluate.curated": str(tmp_path / "leaked.jsonl")}
    config = curated.config
    held = {"curated": str(tmp_path / "leaked.jsonl"), "curated_column": "body", "ngram": 40}
    open_pool = Pipeline(
        config.model_copy(
            update={
                "store": settings["store"],
                "evaluate": config.evaluate.model_copy(update={"curated": settings["evaluate.curated"]}),
            }
        )
    )
    open_pool.run("questions", RELEASE)
    found, hit = contamination(open_pool.store, RELEASE, ngram=40)
    assert known["id"] in {name for name, _ in hit}
    assert (found["tasks"][CURATED]["questions"], found["tasks"][CURATED]["questions_hit"]) == (2, 1)
    assert {example["row"] for example in found["tasks"][CURATED]["examples"]} == {0}
    closed = Pipeline(
        open_pool.config.model_copy(
            update={
                "pool": type(config.pool).model_validate({**config.pool.model_dump(), "decontaminate": held})
            }
        )
    )
    closed.check("questions")
    for stage in ("decontaminate", "pool", "questions"):
        closed.run(stage, RELEASE)
    pool = {row["id"]: row["exclusion"] for row in rows_of(closed, "pool", RELEASE)}
    assert pool[known["id"]] in ("contaminated", "duplicate_content")
    about = closed.store.manifest(require(closed.store, "pool", RELEASE))["metadata"]["decontaminate"][
        "tasks"
    ]
    assert about[CURATED]["questions"] == 2
    assert about[CURATED]["documents_left_out"] >= 1
    assert contamination(closed.store, RELEASE, ngram=40)[1] == []
    (tmp_path / "leaked.jsonl").unlink()
    with pytest.raises(InputError, match=r"pool\.decontaminate\.curated"):
        closed.check("pool")


def test_config_check_says_whether_documents_are_held_against_them(
    curated: Pipeline, tiny_config_file: Path
) -> None:
    good = str(curated.config.evaluate.curated)

    def told(*settings: str) -> str:
        options = [word for one in settings for word in ("-s", one)]
        done = CliRunner().invoke(app, ["config", "check", "-c", str(tiny_config_file), *options])
        assert done.exit_code == 0, done.exception
        return done.output

    asked = (f"evaluate.curated={good}", "evaluate.curated_column=body")
    words = "# documents are not held against evaluate.curated"
    assert words in told(*asked)
    assert words not in told()
    held = "pool.decontaminate={{curated: {}, curated_column: body}}"
    assert words not in told(*asked, held.format(good))
    assert words in told(*asked, held.format(good.replace("good", "go*")))
    done = CliRunner().invoke(
        app, ["config", "check", "-c", str(tiny_config_file), "-s", f"evaluate.curated={good}"]
    )
    assert "no such column; there are: body" in str(done.exception)


def test_config_check_names_tasks_that_documents_are_not_held_against(
    tiny_config_file: Path, tmp_path: Path
) -> None:
    """Unnamed tasks are the paper's twelve on both sides: arc_easy, named on one, was asked and held against nothing."""

    def told(asked: list[str], held: list[str], questions: str = str(tmp_path)) -> list[str]:
        settings: dict[str, object] = {"evaluate.questions": questions, "evaluate.tasks": asked}
        settings["pool.decontaminate"] = {"questions": str(tmp_path), "tasks": held}
        return list(not_held_against(load_config(str(tiny_config_file), settings)))

    (line,) = told(["piqa", "arc_easy"], [])
    assert line.startswith("documents are not held against arc_easy, which evaluate.tasks asks")
    assert told(["piqa", "arc_easy"], ["arc_easy", "piqa"]) == []
    assert told([], []) == []
    assert told(["piqa"], ["winogrande"], LOCAL) == [], "made of documents that no arm is given"


def test_a_check_sees_a_document_that_is_missing_or_has_a_score(curated: Pipeline) -> None:
    ref = require(curated.store, "answers", f"{RELEASE}/{RUN}")
    artefact = Artefact(curated, ref, curated.store.manifest(ref))
    assert evaluate_asset.every_document_was_read_once(artefact).passed
    assert evaluate_asset.every_question_was_answered_once(artefact).passed
    path = Path(curated.store.part_paths(ref)[0])
    whole, table = path.read_bytes(), curated.store.read_table(ref)
    try:
        pq.write_table(table.filter(pc.field("task") != CURATED), path)
        assert not evaluate_asset.every_document_was_read_once(artefact).passed
        place = table.schema.get_field_index("value")
        pq.write_table(table.set_column(place, "value", pc.fill_null(table["value"], 0.5)), path)
        assert not evaluate_asset.every_document_was_read_once(artefact).passed
    finally:
        path.write_bytes(whole)
