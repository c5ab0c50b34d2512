"""The tasks are lm-eval's own; what we change in them is checked against the originals."""

from pathlib import Path

import pytest
from lm_eval.tasks._yaml_loader import load_yaml
from stock_tasks import FILES

from datamask_pipeline.errors import UnknownNameError
from datamask_pipeline.evaluation.benchmarks import all_benchmarks, benchmarks_named, render
from datamask_pipeline.evaluation.stock import stock_tasks

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
_BESIDE = {"arc_easy": "acc_norm", "commonsense_qa": "acc"}


def test_the_twelve_stand_in_the_papers_order_with_its_metrics() -> None:
    assert {task: item.metric for task, item in all_benchmarks().items()} == _HEADLINES | _BESIDE
    assert list(all_benchmarks()) == [*_HEADLINES, *_BESIDE]
    assert [item.task for item in benchmarks_named([])] == list(_HEADLINES)
    assert [item.task for item in benchmarks_named(["arc_easy", "piqa"])] == ["piqa", "arc_easy"]
    assert [item.task for item in benchmarks_named(["piqa", "hellaswag"])] == ["hellaswag", "piqa"]
    with pytest.raises(UnknownNameError, match="choose one of: arc_challenge"):
        benchmarks_named(["boolqq"])


@pytest.mark.parametrize("task", FILES)
def test_prompts_targets_and_metrics_are_stock(task: str, tmp_path: Path) -> None:
    render(
        all_benchmarks()[task],
        tmp_path,
        questions=tmp_path / "q.parquet",
        demonstrations=None,
    )
    ours, stock = load_yaml(tmp_path / f"{task}.yaml"), load_yaml(stock_tasks() / FILES[task])
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
    assert ours.get("metadata") == stock.get("metadata")
    generation = ours.get("generation_kwargs", {})
    assert {key: generation[key] for key in generation if key != "max_gen_toks"} == stock.get(
        "generation_kwargs", {}
    )
    assert ours["dataset_kwargs"] == {"questions": str(tmp_path / "q.parquet")}


def test_one_mmlu_task_stands_for_the_57_stock_ones() -> None:
    definitions = [load_yaml(path) for path in (stock_tasks() / "mmlu" / "continuation").glob("mmlu_*.yaml")]
    assert len(definitions) == 57
    for definition in definitions:
        about = definition["dataset_name"].replace("_", " ")
        assert definition["description"] == f"The following are questions (with answers) about {about}.\n\n"


def test_each_task_asks_the_split_that_lm_eval_asks() -> None:
    asked = {task: (item.split, item.examples_split, item.sampler) for task, item in all_benchmarks().items()}
    assert asked["arc_challenge"] == asked["arc_easy"] == asked["openbookqa"] == ("test", "train", "default")
    assert asked["mmlu"] == ("test", "dev", "first_n")
    assert asked["race_high"] == asked["race_middle"] == ("test", "test", "default")
    validation = {"hellaswag", "nq_open", "kqapro", "triviaqa", "social_iqa", "piqa", "winogrande"}
    validation |= {"commonsense_qa"}
    assert {task for task, of in asked.items() if of == ("validation", "train", "default")} == validation
    places = {task: (item.repository, item.configuration) for task, item in all_benchmarks().items()}
    assert places["arc_challenge"] == ("allenai/ai2_arc", "ARC-Challenge")
    assert places["race_middle"] == ("EleutherAI/race", "middle")


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
