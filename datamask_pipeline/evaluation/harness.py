"""Run a model through lm-eval and return plain rows.

Knows no arm and no store. Nothing is fetched, as model, tokenizer and questions are given, and nothing is written
outside the work directory.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lm_eval.evaluator
import torch
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from datamask_pipeline.errors import ConfigurationError, DataMaskError
from datamask_pipeline.evaluation.benchmarks import render
from datamask_pipeline.evaluation.config import EvaluateConfig
from datamask_pipeline.evaluation.questions import QuestionSet
from datamask_pipeline.hardware import present_device, torch_threads


@dataclass(frozen=True)
class ResultRow:
    """One metric of one task.

    `value` is a fraction in 0..1, higher is better; `stderr` its standard error, null where lm-eval knows
    none; `n` the number of questions; `version` the task definition's; `headline` marks the one metric
    that stands for the benchmark; `num_truncated` counts prompts that lost their beginning.
    """

    task: str
    label: str
    metric: str
    value: float
    stderr: float | None
    n: int
    version: str
    headline: bool
    chance: float
    shots: int
    question_source: str
    questions_digest: str
    num_truncated: int


@dataclass(frozen=True)
class AnswerRow:
    """What one question added to its task's headline metric: two models can be compared in pairs."""

    task: str
    question_id: str
    metric: str
    value: float


@dataclass(frozen=True)
class Evaluation:
    """The results of one model: rows by task in canonical order, answers by task and question id."""

    results: list[ResultRow]
    answers: list[AnswerRow]


def evaluate(
    model: PreTrainedModel | Path,
    tokenizer: PreTrainedTokenizerFast,
    questions: Sequence[QuestionSet],
    work_directory: Path,
    config: EvaluateConfig,
) -> Evaluation:
    """Ask one model all questions. The same model and questions give the same rows.

    Args:
        model: A model, or a directory that `from_pretrained` reads.
        tokenizer: The model's.
        questions: From `prepare_questions`.
        work_directory: Task definitions and a log go here; may be deleted afterwards.
        config: Shots, seed, batch size, length, device.

    Raises:
        ConfigurationError: The device is not there, or an answer does not fit into `max_length`.
        DataMaskError: lm-eval left out a task or a headline metric.
    """
    present_device(config.device)
    definitions = (work_directory / "tasks").resolve()
    for item in questions:
        render(
            item.benchmark,
            definitions,
            questions=item.file.resolve(),
            demonstrations=None if item.demonstrations is None else item.demonstrations.resolve(),
        )
    with _quiet(work_directory / "harness.log"), torch_threads(config.threads):
        if isinstance(model, Path):
            model = AutoModelForCausalLM.from_pretrained(model, local_files_only=True, dtype=torch.float32)
        harness = HFLM(
            pretrained=model.to(config.device).eval(),
            tokenizer=tokenizer,
            batch_size=config.batch_size,
            max_length=config.max_length,
            backend="causal",
        )
        tasks = _tasks(definitions, [item.benchmark.task for item in questions], config)
        _refuse_long_answers(tasks, harness)
        report = lm_eval.evaluator.evaluate(harness, {"tasks": tasks})
    results, answers = [], []
    for item in questions:
        results += _results(report, item, config, harness)
        answers += _answers(report["samples"][item.benchmark.task], item)
    return Evaluation(results, answers)


def _tasks(definitions: Path, names: Sequence[str], config: EvaluateConfig) -> dict[str, Any]:
    """lm-eval's task objects by name, with this many shots, except where a definition shows its own examples."""
    manager = TaskManager(include_path=str(definitions), include_defaults=False)
    tasks: dict[str, Any] = manager.load(list(names))["tasks"]
    for task in tasks.values():
        if task.get_config("num_fewshot") != 0:
            task.set_config(key="num_fewshot", value=config.shots)
        task.set_fewshot_seed(seed=config.seed)
    return tasks


def _results(report: Any, item: QuestionSet, config: EvaluateConfig, harness: HFLM) -> list[ResultRow]:
    """The metrics lm-eval names `metric,filter` with their `metric_stderr,filter`."""
    task = item.benchmark.task
    scores = report["results"].get(task, {})
    truncated = _num_truncated(report["samples"].get(task, []), harness)
    rows = []
    for key, value in scores.items():
        metric, comma, name = key.partition(",")
        if not comma or metric.endswith("_stderr"):
            continue
        stderr = scores.get(f"{metric}_stderr,{name}")
        known = isinstance(stderr, int | float) and math.isfinite(stderr)
        rows.append(
            ResultRow(
                task=task,
                label=item.benchmark.label,
                metric=metric,
                value=float(value),
                stderr=float(stderr) if known else None,
                n=int(report["n-samples"][task]["effective"]),
                version=str(report["versions"][task]),
                headline=metric == item.benchmark.metric,
                chance=item.chance,
                shots=config.shots,
                question_source=item.source,
                questions_digest=item.digest,
                num_truncated=truncated,
            )
        )
    if sum(row.headline for row in rows) != 1:
        raise DataMaskError(
            f"lm-eval reported {sorted(scores)} for {task}, not {item.benchmark.metric!r} once"
        )
    return sorted(rows, key=lambda row: (not row.headline, row.metric))


def _answers(samples: list[dict[str, Any]], item: QuestionSet) -> list[AnswerRow]:
    metric = item.benchmark.metric
    rows = [
        AnswerRow(item.benchmark.task, sample["doc"]["question_id"], metric, float(sample[metric]))
        for sample in samples
    ]
    return sorted(rows, key=lambda row: row.question_id)


def _refuse_long_answers(tasks: dict[str, Any], harness: HFLM) -> None:
    """Prompts may lose their beginning, answers may not: lm-eval would stop at a bare assertion."""
    for name, task in tasks.items():
        if task.OUTPUT_TYPE != "multiple_choice":
            continue
        for document in task.test_docs():
            # With several contexts (WinoGrande) what is scored is the target behind them.
            scored = [task.doc_to_target(document)] if task.multiple_input else task.doc_to_choice(document)
            longest = max(len(harness.tok_encode(f" {text}")) for text in scored)
            if longest > harness.max_length:
                raise ConfigurationError(
                    f"task {name!r}: an answer of question {document['question_id']} has {longest} tokens, "
                    f"max_length is {harness.max_length}; raise max_length, or take the question out"
                )


def _num_truncated(samples: list[dict[str, Any]], harness: HFLM) -> int:
    """Prompts that lose their beginning: with what is scored or generated they exceed the model's context."""
    texts, room = [], []
    for sample in samples:
        for prompt, rest in sample["arguments"]:
            scored = isinstance(rest, str)  # else generation settings
            texts.append(prompt + rest if scored else prompt)
            # The last token of a scored text is predicted, never read.
            room.append(harness.max_length + 1 if scored else harness.max_length - rest["max_gen_toks"])
    encoded = harness.tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)
    return sum(len(encoding.ids) > limit for encoding, limit in zip(encoded, room, strict=True))


@contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """No chatter, and progress bars into a file, until the block ends."""
    chatter = logging.getLogger("lm_eval")
    with ExitStack() as stack:
        stack.callback(transformers_logging.set_verbosity, transformers_logging.get_verbosity())
        transformers_logging.set_verbosity_error()
        stack.callback(chatter.setLevel, chatter.level)
        chatter.setLevel(logging.ERROR)
        stack.enter_context(redirect_stderr(stack.enter_context(log.open("w"))))
        yield
