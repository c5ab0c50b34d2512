"""lm-eval's own tasks over given rows: what ours are compared with. No hub, no cache."""

from pathlib import Path
from typing import Any

import datasets
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

from datamask_pipeline.evaluation.benchmarks import render
from datamask_pipeline.evaluation.questions import QuestionSet
from datamask_pipeline.evaluation.stock import stock_tasks

Row = dict[str, Any]
FILES = {
    "race_high": "race/race.yaml",
    "race_middle": "race/race.yaml",
    "hellaswag": "hellaswag/hellaswag.yaml",
    "nq_open": "nq_open/nq_open.yaml",
    "openbookqa": "openbookqa/openbookqa.yaml",
    "triviaqa": "triviaqa/default.yaml",
    "arc_challenge": "arc/arc_challenge.yaml",
    "arc_easy": "arc/arc_easy.yaml",
    "commonsense_qa": "commonsense_qa/default.yaml",
    "social_iqa": "siqa/siqa.yaml",
    "piqa": "piqa/piqa.yaml",
    "winogrande": "winogrande/default.yaml",
}


def stock_task(file: str, splits: dict[str, list[Row]], shots: int = 0, seed: int = 1234) -> Any:
    """The task of a YAML below lm-eval's `tasks`, its data set replaced by rows, as `lm_eval.simple_evaluate` sets it up."""
    definition = load_yaml(stock_tasks() / file)
    made = datasets.DatasetDict({name: datasets.Dataset.from_list(rows) for name, rows in splits.items()})
    definition |= {"custom_dataset": lambda **_: made, "num_fewshot": shots}
    definition.pop("tag", None)
    task = ConfigurableTask(config=definition)
    task.set_fewshot_seed(seed=seed)
    return task


def our_task(prepared: QuestionSet, folder: Path, shots: int = 0) -> Any:
    """The task that our harness gives to lm-eval."""
    render(prepared.benchmark, folder, questions=prepared.file, demonstrations=prepared.demonstrations)
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    task: Any = manager.load([prepared.benchmark.task])["tasks"][prepared.benchmark.task]
    task.set_config(key="num_fewshot", value=shots)
    return task


def prompts_and_targets(task: Any) -> list[tuple[Any, Any]]:
    """Of each question in the order of its split, the texts that a model is asked, and what is right."""
    task.build_all_requests()
    documents = list(task.eval_docs)
    asked: list[list[Any]] = [[] for _ in documents]
    for request in task.instances:
        asked[request.doc_id].append(request.args)
    return [(asked[number], task.doc_to_target(document)) for number, document in enumerate(documents)]
