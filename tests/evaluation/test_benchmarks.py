"""The tasks are lm-eval's own; what we change in them is checked against the originals."""

from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

from datamask_pipeline.errors import UnknownNameError
from datamask_pipeline.evaluation.benchmarks import _stock_tasks, all_benchmarks, benchmarks_named, render
from datamask_pipeline.evaluation.config import EvaluateConfig
from datamask_pipeline.evaluation.questions import prepare_questions

_HEADLINES = {
    "race_high": "acc",
    "race_middle": "acc",
    "hellaswag": "acc_norm",
    "nq_open": "exact_match",
    "openbookqa": "acc_norm",
    "kqapro": "acc",
    "mmlu": "acc",
    "triviaqa": "exact_match",
    "arc_challenge": "acc_norm",
    "social_iqa": "acc",
    "piqa": "acc_norm",
    "winogrande": "acc",
}
_STOCK = {
    "race_high": "race/race.yaml",
    "race_middle": "race/race.yaml",
    "hellaswag": "hellaswag/hellaswag.yaml",
    "nq_open": "nq_open/nq_open.yaml",
    "openbookqa": "openbookqa/openbookqa.yaml",
    "triviaqa": "triviaqa/default.yaml",
    "arc_challenge": "arc/arc_challenge.yaml",
    "social_iqa": "siqa/siqa.yaml",
    "piqa": "piqa/piqa.yaml",
    "winogrande": "winogrande/default.yaml",
}


def test_the_twelve_stand_in_the_papers_order_with_its_metrics() -> None:
    assert {task: item.metric for task, item in all_benchmarks().items()} == _HEADLINES
    assert list(all_benchmarks()) == list(_HEADLINES)
    assert [item.task for item in benchmarks_named(["piqa", "hellaswag"])] == ["hellaswag", "piqa"]
    with pytest.raises(UnknownNameError, match="choose one of: arc_challenge"):
        benchmarks_named(["boolq"])


@pytest.mark.parametrize("task", _STOCK)
def test_prompts_targets_and_metrics_are_stock(task: str, tmp_path: Path) -> None:
    render(
        all_benchmarks()[task],
        tmp_path,
        questions=tmp_path / "q.parquet",
        demonstrations=None,
    )
    ours, stock = load_yaml(tmp_path / f"{task}.yaml"), load_yaml(_stock_tasks() / _STOCK[task])
    for key in (
        "output_type",
        "description",
        "doc_to_text",
        "doc_to_target",
        "doc_to_choice",
        "process_docs",
    ):
        assert ours.get(key) == stock.get(key)
    assert ours["metric_list"] == stock["metric_list"]
    assert ours["metadata"]["version"] == stock["metadata"]["version"]
    generation = ours.get("generation_kwargs", {})
    assert {key: generation[key] for key in generation if key != "max_gen_toks"} == stock.get(
        "generation_kwargs", {}
    )
    assert ours["dataset_kwargs"] == {"questions": str(tmp_path / "q.parquet")}


def test_one_mmlu_task_gives_the_prompts_of_the_57_stock_ones(tmp_path: Path) -> None:
    folder = _stock_tasks() / "mmlu" / "continuation"
    stock = [load_yaml(path) for path in sorted(folder.glob("mmlu_*.yaml"))]
    source = tmp_path / "source"
    source.mkdir()
    for definition in stock:
        name = definition["dataset_name"]
        (source / f"{name}_test.csv").write_text(f" What of {name}? ,one,two,three,four,C\n")
    config = EvaluateConfig(
        questions=str(source), question_files={"mmlu": "*.csv"}, tasks=["mmlu"], questions_per_task=57
    )
    (prepared,) = prepare_questions(config, tmp_path / "made")
    render(
        prepared.benchmark,
        tmp_path / "tasks",
        questions=prepared.file,
        demonstrations=None,
    )
    manager = TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False)
    ours: Any = manager.load(["mmlu"])["tasks"]["mmlu"]
    rows = {row["subject"]: row for row in ours.test_docs()}
    assert len(rows) == len(stock) == 57
    local = {
        "dataset_path": "parquet",
        "dataset_name": None,
        "fewshot_split": None,
        "test_split": "questions",
    }
    local["dataset_kwargs"] = {
        "data_files": {"questions": str(prepared.file)},
        "cache_dir": str(tmp_path / "cache"),
    }
    for definition in stock[::8]:
        row = rows[definition["dataset_name"]]
        theirs = ConfigurableTask(
            config={
                key: value
                for key, value in (definition | local).items()
                if key not in ("tag", "fewshot_config")
            }
        )
        assert ours.fewshot_context(row, 0) == theirs.fewshot_context(row, 0)
        assert ours.doc_to_choice(row) == theirs.doc_to_choice(row)
        assert ours.doc_to_target(row) == theirs.doc_to_target(row) == 2
    for definition in stock:
        about = definition["dataset_name"].replace("_", " ")
        assert definition["description"] == f"The following are questions (with answers) about {about}.\n\n"


def test_solved_examples_are_declared(tmp_path: Path) -> None:
    render(
        all_benchmarks()["piqa"],
        tmp_path,
        questions=tmp_path / "q",
        demonstrations=tmp_path / "d",
    )
    written = load_yaml(tmp_path / "piqa.yaml")
    assert written["fewshot_split"] == "demonstrations"
    assert written["dataset_kwargs"]["demonstrations"] == str(tmp_path / "d")
